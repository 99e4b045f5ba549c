# Compiler flags that hold for every target of the project.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Options of the C++ compiler; nvcc has its own (strata_cuda.cmake).
function(strata_cxx_options)
  foreach(option IN LISTS ARGN)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${option}>)
  endforeach()
endfunction()

strata_cxx_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual -Wimplicit-fallthrough)
option(STRATA_WARNINGS_AS_ERRORS "Stop at the first compiler warning" ON)
if(STRATA_WARNINGS_AS_ERRORS)
  strata_cxx_options(-Werror)
endif()

# The numbers contract (docs/numerics.md): every float operation is the one that the source writes. Nothing in the
# project wants contraction or fast-math, so they are off everywhere and not file by file.
strata_cxx_options(-ffp-contract=off)

string(REPLACE "," ";" sanitizers "${STRATA_SANITIZE}")
foreach(sanitizer IN LISTS sanitizers)
  add_compile_options(-fsanitize=${sanitizer} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${sanitizer})
endforeach()
if(STRATA_SANITIZE)
  add_compile_definitions(STRATA_SANITIZED=1)
  # g++ 12 reports variables inside std::format-like machinery and coroutines as maybe-uninitialized under sanitizers.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if("thread" IN_LIST sanitizers)
  # Asio puts fences around handlers; ThreadSanitizer does not see them, and does not need to: a mutex orders the same accesses.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
endif()

find_program(STRATA_CCACHE ccache)
if(STRATA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STRATA_CCACHE})
endif()
