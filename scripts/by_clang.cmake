# Read by the preset `asan`, before a compiler is looked for: takes the clang that setup.sh found if it
# has libFuzzer, so that one build has the sanitizers' tests and the fuzzers.
if(LATHE_CLANG AND NOT CMAKE_CXX_COMPILER)
  set(probe ${CMAKE_BINARY_DIR}/has_libfuzzer)
  file(WRITE ${probe}.cpp
       "extern \"C\" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n")
  execute_process(COMMAND ${LATHE_CLANG} -fsanitize=fuzzer,address,undefined ${probe}.cpp -o ${probe}
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(NOT failed)
    set(CMAKE_CXX_COMPILER ${LATHE_CLANG} CACHE FILEPATH "")
    string(REPLACE "clang++" "clang" c_compiler ${LATHE_CLANG})
    set(CMAKE_C_COMPILER ${c_compiler} CACHE FILEPATH "")
    set(LATHE_FUZZ ON CACHE BOOL "")
    set(LATHE_WERROR OFF CACHE BOOL "")  # warnings are the release build's concern
  endif()
endif()
