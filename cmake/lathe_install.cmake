# Owns what is installed, and the packages that say where it is.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS lathe_shared lathe_static EXPORT lathe_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Runtime
                NAMELINK_COMPONENT Development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Development)
if(TARGET lathe_llvm)
  install(TARGETS lathe_llvm LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Runtime)
endif()
install(DIRECTORY include/lathe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT Development)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT Runtime)

# find_package(lathe)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lathe)
install(EXPORT lathe_targets NAMESPACE lathe:: FILE lathe-targets.cmake
        DESTINATION ${package_folder} COMPONENT Development)
configure_package_config_file(cmake/lathe-config.cmake.in lathe-config.cmake
                              INSTALL_DESTINATION ${package_folder})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(lathe-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lathe-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/lathe-config-version.cmake
        DESTINATION ${package_folder} COMPONENT Development)

# pkg-config. Relative to the file, so that an installed tree can be moved.
file(RELATIVE_PATH lathe_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" lathe_pc_prefix "${lathe_pc_prefix}")
configure_file(cmake/lathe.pc.in lathe.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lathe.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT Development)

# cpack -G DEB: one package with everything.
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_CONTACT "The Lathe developers")
  set(CPACK_PACKAGE_VENDOR Lathe)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
  include(CPack)
endif()
