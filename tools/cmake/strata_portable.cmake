# Programs that can be carried to a machine without the project's libraries (a bare GPU machine, say). Debian has no static archives
# of several of them, so the shared ones travel: with STRATA_PORTABLE every program, test and benchmark gets a folder lib/ beside it
# and looks there first. What every C++ program finds on any newer Linux stays out: the C library and the compiler's runtime.
option(STRATA_PORTABLE "Put the shared libraries of each program into lib/ beside it, to run on machines without them" OFF)

function(strata_portable target)
  if(NOT STRATA_PORTABLE)
    return()
  endif()
  # An RPATH and not a RUNPATH: it holds for what the libraries themselves need, too.
  set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN/lib")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${target}> -P ${CMAKE_SOURCE_DIR}/tools/cmake/bundle_libraries.cmake
    VERBATIM)
endfunction()
