# Read by the preset `fuzz`, before a compiler is looked for: takes the clang that setup.sh found.
if(LATHE_CLANG AND NOT CMAKE_CXX_COMPILER)
  set(CMAKE_CXX_COMPILER ${LATHE_CLANG} CACHE FILEPATH "")
endif()
