# Owns how every target of Lathe is compiled: standard, warnings, contraction, sanitizers.

function(lathe_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # Host arithmetic must round as the device code does: every fused multiply-add is written out.
  target_compile_options(${name} PRIVATE -Wall -Wextra -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${name} PRIVATE -Wno-restrict)  # false alarms on std::string there
  endif()
  if(LATHE_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(LATHE_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${LATHE_SANITIZE} -fno-omit-frame-pointer
                                           -fno-sanitize-recover=all)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # False alarms between instrumentation and -O1; release builds have the warning.
      target_compile_options(${name} PRIVATE -Wno-maybe-uninitialized)
    endif()
    target_link_options(${name} PUBLIC -fsanitize=${LATHE_SANITIZE})
  endif()
endfunction()

# What fuzzers look into: libFuzzer sees which of its branches an input takes.
function(lathe_fuzzed name)
  if(LATHE_FUZZ)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# The headers are compiled once for all targets of a group, which are compiled alike.
function(lathe_precompile name group)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    return()  # ccache keeps nothing that includes a precompiled header
  endif()
  get_property(first GLOBAL PROPERTY LATHE_FIRST_${group})
  if(first)
    target_precompile_headers(${name} REUSE_FROM ${first})
  else()
    set_property(GLOBAL PROPERTY LATHE_FIRST_${group} ${name})
    target_precompile_headers(${name} PRIVATE ${ARGN})
  endif()
endfunction()

# The same for what others are to compile without: only under sanitizers, where it is a third of the
# time, so that the other builds show an include that a file lacks. Further headers follow the group.
function(lathe_precompile_sanitized name group)
  if(LATHE_SANITIZE)
    lathe_precompile(${name} ${group}
      <algorithm> <array> <chrono> <cstring> <filesystem> <fstream> <functional> <map> <memory>
      <mutex> <optional> <set> <span> <sstream> <string> <string_view> <thread> <utility>
      <variant> <vector> ${ARGN})
  endif()
endfunction()

# How programs and their libraries are compiled: the loops are the library's.
function(lathe_compile_program name group)
  if(LATHE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  lathe_precompile_sanitized(${name} ${group} <fmt/format.h>)
endfunction()

# A library of programs.
function(lathe_program_part name)
  lathe_target(${name})
  lathe_compile_program(${name} PROGRAM_PART)
endfunction()

# A layer of the library: whoever links it shows none of its C++ symbols to others.
function(lathe_layer name)
  lathe_target(${name})
  lathe_fuzzed(${name})
  lathe_precompile_sanitized(${name} ${name} <fmt/format.h>)
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden
                                           VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# How the files of a test are compiled: a check takes longer to compile them than to run them, and
# their loops are those of libraries. What sanitizers add takes clang three times as long to
# optimize as to write down.
function(lathe_compile_quickly name)
  if(LATHE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  else()
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  lathe_precompile(${name} TEST
    <gtest/gtest.h> <algorithm> <filesystem> <fstream> <functional> <map> <span> <string> <thread>
    <vector>)
endfunction()

# Those files of a test, in the folder of the call, whose own loops are long.
function(lathe_test_loops_in)
  if(LATHE_SANITIZE)
    # The precompiled headers are of another -O.
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O2 SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# One executable of GoogleTest tests, found by ctest one by one. THREADS: the preset `threads` builds
# it, and ./check --threads runs it under ThreadSanitizer.
function(lathe_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test THREADS "" "")
  add_executable(${name} ${test_UNPARSED_ARGUMENTS})
  lathe_target(${name})
  lathe_compile_quickly(${name})
  target_link_libraries(${name} PRIVATE GTest::gtest_main)
  set(labels "")
  if(test_THREADS)
    set(labels threads)
    set_property(GLOBAL APPEND PROPERTY LATHE_THREADS_TESTS ${name})
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${labels}")
endfunction()
