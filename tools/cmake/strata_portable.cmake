# Programs that can be carried to a machine without the project's libraries (a bare GPU machine, say). Debian has no static archives
# of several of them, so the shared ones travel: with STRATA_PORTABLE every program, test and benchmark gets a folder lib/ beside it
# and looks there first, and `cmake --install` (or cpack) makes a tree that runs wherever it is put:
#   bin/ lib/ configs/ models/ docs/ tools/gpu-tests.sh, and sdk/: the few headers and libraries with which STRATA_PARTS=kernels builds.
# What every C++ program finds on any newer Linux stays out: the C library and the compiler's runtime.
option(STRATA_PORTABLE "Put the shared libraries of each program into lib/ beside it, to run on machines without them" OFF)

set(bundle_script ${CMAKE_CURRENT_LIST_DIR}/bundle_libraries.cmake)

function(strata_portable target)
  if(NOT STRATA_PORTABLE)
    return()
  endif()
  # An RPATH and not a RUNPATH: it holds for what the libraries themselves need, too.
  set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN/lib" INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${target}> -D INTO=$<TARGET_FILE_DIR:${target}>/lib -P ${bundle_script}
    VERBATIM)
endfunction()

# Installs what a program needs beside itself.
function(strata_install_libraries target)
  if(STRATA_PORTABLE)
    install(CODE "execute_process(
      COMMAND \"${CMAKE_COMMAND}\" -D \"PROGRAM=$<TARGET_FILE:${target}>\" -D \"INTO=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib\"
        -P \"${bundle_script}\" COMMAND_ERROR_IS_FATAL ANY)")
  endif()
endfunction()

if(NOT STRATA_PORTABLE OR NOT STRATA_PARTS STREQUAL "all")
  return()
endif()

install(DIRECTORY configs DESTINATION .)
install(DIRECTORY docs DESTINATION . FILES_MATCHING PATTERN "*.md")
install(FILES README.md LICENSE CHANGELOG.md DESTINATION .)
install(FILES models/strata-demo.gguf models/strata-demo.profile models/README.md models/LICENSES.md DESTINATION models)
install(PROGRAMS tools/gpu-tests.sh DESTINATION tools)

set(CPACK_GENERATOR TXZ)
set(CPACK_PACKAGE_NAME strata)
set(CPACK_SYSTEM_NAME linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_ARCHIVE_THREADS 0)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
