// main() of tests that run on a GPU.

#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include <cstdio>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    std::printf("skipped: no GPU: %s\n", cudaGetErrorString(error));
    return 77;  // what CTest takes as skipped
  }
  return RUN_ALL_TESTS();
}
