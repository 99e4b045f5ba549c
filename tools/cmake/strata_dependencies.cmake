# What the project takes from Debian 12. The reasons are in docs/dependencies.md.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(tl-expected REQUIRED)
find_path(STRATA_XXHASH_INCLUDE xxhash.h REQUIRED)
find_library(STRATA_XXHASH_LIBRARY xxhash REQUIRED)
add_library(strata_xxhash INTERFACE)
target_include_directories(strata_xxhash SYSTEM INTERFACE ${STRATA_XXHASH_INCLUDE})
target_link_libraries(strata_xxhash INTERFACE ${STRATA_XXHASH_LIBRARY})

# The gateway's load benchmark shares its clients and engine with tests.
if(STRATA_BUILD_TESTS OR (STRATA_BUILD_BENCHMARKS AND STRATA_PARTS STREQUAL "all"))
  find_package(GTest REQUIRED)
endif()
if(STRATA_BUILD_TESTS)
  enable_testing()
endif()
if(STRATA_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
if(STRATA_PARTS STREQUAL "kernels")
  return()  # what stands above is all that they need, and what sdk/ of a portable installation has
endif()

find_package(spdlog REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)

add_library(strata_asio INTERFACE)
target_link_libraries(strata_asio INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(strata_asio INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_BOOST_ARRAY)

if(STRATA_BUILD_TESTS)
  find_package(Boost 1.81 REQUIRED COMPONENTS context)  # fibers of the CUDA emulation
endif()
