# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
#
# Install rules, the CMake package and the pkg-config file. No installed file contains the prefix, so the installation
# can be moved.

include(CMakePackageConfigHelpers)
set(TIDEMARK_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/tidemark")

install(TARGETS tidemark tidemark_static tidemark_conformance EXPORT tidemark
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES ${TIDEMARK_HEADERS} "${PROJECT_SOURCE_DIR}/tests/conformance/conformance.h"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tidemark")
if(TARGET tidemark_preload)
  install(TARGETS tidemark_preload LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(TARGET tidemark_tool)
  install(TARGETS tidemark_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  if(TARGET tidemark_mpi)
    install(TARGETS tidemark_mpi RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    install(FILES "${PROJECT_SOURCE_DIR}/docs/man/tidemark-mpi.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  endif()
  install(FILES "${PROJECT_SOURCE_DIR}/docs/man/tidemark.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
endif()

# The program generates its own shell completion, so it must be able to run here.
if(TARGET tidemark_tool AND NOT CMAKE_CROSSCOMPILING AND NOT TIDEMARK_SANITIZE)
  set(TIDEMARK_COMPLETION "${PROJECT_BINARY_DIR}/completion")
  file(MAKE_DIRECTORY "${TIDEMARK_COMPLETION}")
  add_custom_command(OUTPUT "${TIDEMARK_COMPLETION}/tidemark.bash" "${TIDEMARK_COMPLETION}/_tidemark"
                     COMMAND tidemark_tool --completion bash > "${TIDEMARK_COMPLETION}/tidemark.bash"
                     COMMAND tidemark_tool --completion zsh > "${TIDEMARK_COMPLETION}/_tidemark"
                     DEPENDS tidemark_tool VERBATIM)
  add_custom_target(tidemark_completion ALL DEPENDS "${TIDEMARK_COMPLETION}/tidemark.bash")
  install(FILES "${TIDEMARK_COMPLETION}/tidemark.bash" RENAME tidemark
          DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  if(TARGET tidemark_mpi)  # bash finds a completion by the name of the command
    install(FILES "${TIDEMARK_COMPLETION}/tidemark.bash" RENAME tidemark-mpi
            DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  endif()
  install(FILES "${TIDEMARK_COMPLETION}/_tidemark" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
endif()
foreach(file LICENSE README.md CHANGELOG.md)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${file}")
    install(FILES "${PROJECT_SOURCE_DIR}/${file}" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/tidemark")
  endif()
endforeach()

install(EXPORT tidemark NAMESPACE tidemark:: FILE tidemark-targets.cmake DESTINATION "${TIDEMARK_PACKAGE_DIR}")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/tidemark-config.cmake.in"
                              "${PROJECT_BINARY_DIR}/tidemark-config.cmake"
                              INSTALL_DESTINATION "${TIDEMARK_PACKAGE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tidemark-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tidemark-config.cmake" "${PROJECT_BINARY_DIR}/tidemark-config-version.cmake"
        DESTINATION "${TIDEMARK_PACKAGE_DIR}")

# pkg-config knows the folder of its file; the prefix is as many levels above as the library folder has components.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(TIDEMARK_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
  set(TIDEMARK_PC_LIBDIR "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(TIDEMARK_PC_INCLUDEDIR "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  file(RELATIVE_PATH TIDEMARK_PC_UP "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" TIDEMARK_PC_UP "${TIDEMARK_PC_UP}")
  set(TIDEMARK_PC_PREFIX "\${pcfiledir}/${TIDEMARK_PC_UP}")
  set(TIDEMARK_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(TIDEMARK_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/tidemark.pc.in" "${PROJECT_BINARY_DIR}/tidemark.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/tidemark.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
