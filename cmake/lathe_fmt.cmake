# Owns lathe_fmt, which is fmt as Lathe links it: within the library and the programs, for those go
# to machines that have no libfmt.so. Headers alone would do, but they are compiled anew in every
# file, which is most of a sanitized build. So codegen/fmt.cpp has what fmt's own library has, in a
# namespace of its own, so that it never meets the fmt of a program that links Lathe.
find_package(fmt REQUIRED)

add_library(lathe_fmt INTERFACE)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  set(lathe_fmt_source fmt.cpp)
  target_compile_definitions(lathe_fmt INTERFACE
    "FMT_BEGIN_NAMESPACE=namespace fmt { inline namespace in_lathe {" "FMT_END_NAMESPACE=}}")
  target_include_directories(lathe_fmt SYSTEM INTERFACE
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
else()  # codegen/fmt.cpp is made for fmt 9
  set(lathe_fmt_source "")
  target_link_libraries(lathe_fmt INTERFACE fmt::fmt-header-only)
endif()
