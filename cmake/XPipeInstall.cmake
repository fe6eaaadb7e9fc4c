# What `cmake --install` leaves behind: the binary, every library of ours but app's, their headers
# under include/xpipe as they are included ("executor/torch/trainer.h"), and a package of imported
# targets for find_package(XPipe): xpipe::policies, xpipe::executor_torch_internal, ... as in the tree.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(XPIPE_INSTALL_INCLUDE_DIR "${CMAKE_INSTALL_INCLUDEDIR}/xpipe")
set(XPIPE_INSTALL_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/XPipe")
# The binary finds LibTorch where the build found it.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# xpipe_install_library(<name> <target>)
#
# Puts a library and its headers into the package as xpipe::<name>; app's commands are no library for
# others.
function(xpipe_install_library name target)
  if(name STREQUAL "app")
    return()
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  get_target_property(sets ${target} INTERFACE_HEADER_SETS)
  set(headers "")
  if(sets)
    set(headers FILE_SET HEADERS DESTINATION "${XPIPE_INSTALL_INCLUDE_DIR}")
  endif()
  install(
    TARGETS ${target}
    EXPORT XPipeTargets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    ${headers})
endfunction()

# Called once all targets are there.
function(xpipe_install_package)
  install(TARGETS xpipe_flags EXPORT XPipeTargets)
  install(TARGETS xpipe RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  install(
    EXPORT XPipeTargets
    NAMESPACE xpipe::
    DESTINATION "${XPIPE_INSTALL_PACKAGE_DIR}")
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/XPipeConfig.cmake.in" "${PROJECT_BINARY_DIR}/XPipeConfig.cmake"
    INSTALL_DESTINATION "${XPIPE_INSTALL_PACKAGE_DIR}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/XPipeConfigVersion.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(
    FILES "${PROJECT_BINARY_DIR}/XPipeConfig.cmake"
          "${PROJECT_BINARY_DIR}/XPipeConfigVersion.cmake"
          "${PROJECT_SOURCE_DIR}/cmake/FindXPipeTorch.cmake"
    DESTINATION "${XPIPE_INSTALL_PACKAGE_DIR}")
endfunction()
