# Programs that can be carried to a machine without the project's libraries (a bare GPU machine, say). Debian has no static archives
# of several of them, so the shared ones travel. What every C++ program finds on any newer Linux stays out: the C library and the
# compiler's runtime.
#
# The component `bundle` of an installation makes it a tree that runs wherever it is put: bin/ lib/ configs/ models/ docs/
# tools/gpu-tests.sh; the component `sdk` (strata_sdk.cmake) adds what STRATA_PARTS=kernels builds with. With STRATA_PORTABLE both are
# part of every installation and of `cpack`, and every program, test and benchmark of the build tree, too, gets a folder lib/ beside it.
option(STRATA_PORTABLE "Put the shared libraries of each program into lib/ beside it, to run on machines without them" OFF)

set(strata_bundle_script ${CMAKE_CURRENT_LIST_DIR}/bundle_libraries.cmake)
set(strata_bundle COMPONENT bundle)
set(strata_sdk COMPONENT sdk)
if(NOT STRATA_PORTABLE)
  list(APPEND strata_bundle EXCLUDE_FROM_ALL)
  list(APPEND strata_sdk EXCLUDE_FROM_ALL)
endif()

function(strata_portable target)
  # An RPATH and not a RUNPATH: it holds for what the libraries themselves need, too.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  if(STRATA_PORTABLE)
    set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN/lib")
    add_custom_command(TARGET ${target} POST_BUILD
      COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${target}> -D INTO=$<TARGET_FILE_DIR:${target}>/lib -P ${strata_bundle_script}
      VERBATIM)
  endif()
endfunction()

# Installs a program, and as part of the bundle what it needs beside itself.
function(strata_install_program target)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  install(TARGETS ${target} RUNTIME)
  install(CODE "execute_process(
    COMMAND \"${CMAKE_COMMAND}\" -D \"PROGRAM=$<TARGET_FILE:${target}>\" -D \"INTO=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib\"
      -P \"${strata_bundle_script}\" COMMAND_ERROR_IS_FATAL ANY)" ${strata_bundle})
endfunction()

if(NOT STRATA_PARTS STREQUAL "all")
  return()
endif()

install(DIRECTORY configs DESTINATION . ${strata_bundle})
install(DIRECTORY docs DESTINATION . ${strata_bundle} FILES_MATCHING PATTERN "*.md")
install(FILES README.md LICENSE CHANGELOG.md DESTINATION . ${strata_bundle})
install(FILES models/strata-demo.gguf models/strata-demo.profile models/README.md models/LICENSES.md DESTINATION models ${strata_bundle})
install(PROGRAMS tools/gpu-tests.sh DESTINATION tools ${strata_bundle})

if(STRATA_PORTABLE)
  set(CPACK_GENERATOR TXZ)
  set(CPACK_PACKAGE_NAME strata)
  set(CPACK_SYSTEM_NAME linux-${CMAKE_SYSTEM_PROCESSOR})
  set(CPACK_STRIP_FILES ON)
  set(CPACK_ARCHIVE_THREADS 0)
  set(CPACK_VERBATIM_VARIABLES ON)
  include(CPack)
endif()
