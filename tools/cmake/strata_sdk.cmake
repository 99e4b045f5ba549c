# The component `sdk` of an installation: what STRATA_PARTS=kernels needs from Debian, to build on a machine that has only a
# compiler, CMake and nvcc:   cmake -S . -B build/gpu -DSTRATA_PARTS=kernels -DCMAKE_PREFIX_PATH=/path/to/sdk
if(NOT STRATA_BUILD_TESTS OR NOT STRATA_PARTS STREQUAL "all")
  return()
endif()

set(sdk_libraries sdk/lib/${CMAKE_LIBRARY_ARCHITECTURE})
find_path(STRATA_GTEST_INCLUDE gtest/gtest.h REQUIRED)
foreach(headers fmt tl gtest gmock benchmark)
  install(DIRECTORY ${STRATA_GTEST_INCLUDE}/${headers} DESTINATION sdk/include ${strata_sdk} OPTIONAL)
endforeach()
install(FILES ${STRATA_XXHASH_INCLUDE}/xxhash.h DESTINATION sdk/include ${strata_sdk})
# With their packages' own descriptions, which find the rest relative to themselves.
install(DIRECTORY ${fmt_DIR} ${GTest_DIR} DESTINATION ${sdk_libraries}/cmake ${strata_sdk})
install(DIRECTORY ${tl-expected_DIR} DESTINATION sdk/share/cmake ${strata_sdk})
get_filename_component(libraries ${STRATA_XXHASH_LIBRARY} DIRECTORY)
file(GLOB files ${libraries}/libfmt.so* ${libraries}/libgtest*.a ${libraries}/libgmock*.a ${libraries}/libxxhash.so*)
if(STRATA_BUILD_BENCHMARKS)
  install(DIRECTORY ${benchmark_DIR} DESTINATION ${sdk_libraries}/cmake ${strata_sdk})
  file(GLOB benchmark_files ${libraries}/libbenchmark.so* ${libraries}/libbenchmark*.a)
  list(APPEND files ${benchmark_files})
endif()
install(FILES ${files} DESTINATION ${sdk_libraries} ${strata_sdk})
