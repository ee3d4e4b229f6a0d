# Owns how the programs are built: in bin/, and fit to be copied to another machine together with
# liblathe_llvm.so.
include(GNUInstallDirs)

# CLI11 takes a compiler long to optimize, and a program runs it once.
function(lathe_command_line_in file)
  set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS -O0)
endfunction()

function(lathe_program name)
  add_executable(${name} ${ARGN})
  lathe_target(${name})
  target_link_libraries(${name} PRIVATE lathe_command_line lathe_fmt)
  lathe_compile_program(${name} PROGRAM)
  # The LLVM route's library is looked for beside the program, or in lib/ when installed. One path
  # for both: a shorter one for the build would be filled up with ':', which means any folder.
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN;$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  # A sanitizer's own library needs the shared C++ runtime.
  if(NOT LATHE_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  if(LATHE_INSTALL)
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT Programs)
  endif()
endfunction()
