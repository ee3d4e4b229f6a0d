# Owns liblathe: the layers as one library, shared and static, whose interface is the C functions of
# include/lathe/c/. What others link is lathe::lathe, one of the two by BUILD_SHARED_LIBS.

function(lathe_libraries)
  find_package(Threads REQUIRED)
  set(objects $<TARGET_OBJECTS:lathe_codegen> $<TARGET_OBJECTS:lathe_plan>
              $<TARGET_OBJECTS:lathe_runtime>)
  set(needs Threads::Threads ${CMAKE_DL_LIBS})

  add_library(lathe_shared SHARED ${objects})
  set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_link_options(lathe_shared PRIVATE -Wl,--version-script=${exports})
  if(NOT LATHE_SANITIZE)  # a sanitizer's functions are those of the program
    target_link_options(lathe_shared PRIVATE -Wl,--no-undefined)
  endif()
  # liblathe_llvm.so is looked for beside it.
  set_target_properties(lathe_shared PROPERTIES
    SOVERSION ${LATHE_ABI_VERSION} VERSION ${PROJECT_VERSION} LINK_DEPENDS ${exports}
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
  target_link_libraries(lathe_shared PRIVATE ${needs})

  add_library(lathe_static STATIC ${objects})
  target_link_libraries(lathe_static PUBLIC ${needs})

  foreach(kind shared static)
    lathe_target(lathe_${kind})
    target_include_directories(lathe_${kind} INTERFACE $<INSTALL_INTERFACE:include>)
    set_target_properties(lathe_${kind} PROPERTIES
      OUTPUT_NAME lathe EXPORT_NAME ${kind} LINKER_LANGUAGE CXX
      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
    add_library(lathe::${kind} ALIAS lathe_${kind})
  endforeach()

  # One is enough for a parent that neither installs nor tests Lathe.
  if(BUILD_SHARED_LIBS)
    set(chosen shared)
    set(other static)
  else()
    set(chosen static)
    set(other shared)
  endif()
  add_library(lathe::lathe ALIAS lathe_${chosen})
  if(NOT LATHE_INSTALL AND NOT LATHE_BUILD_TESTS)
    set_target_properties(lathe_${other} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()
