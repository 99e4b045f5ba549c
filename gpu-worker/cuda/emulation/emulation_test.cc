// What only the emulation does: it finds faults of kernels, and says where they are.

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "gpu-worker/cuda/device_buffer.h"
#include "gpu-worker/cuda/device_code_test_kernels.h"

namespace strata::gpu_worker::cuda {
namespace {

class EmulationDeathTest : public testing::Test {
 protected:
  // The dying process begins anew: it has its own streams, and reads its own environment.
  EmulationDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(EmulationDeathTest, ABarrierThatNotAllReachNamesKernelBlockAndThreads) {
  EXPECT_DEATH(
      {
        run_missed_barrier(nullptr);
        cudaDeviceSynchronize();
      },
      "CUDA emulation: kernel .*missed_barrier.*, block \\(0, 0, 0\\).*: a barrier that not all threads "
      "reach:\n"
      "  thread 0 waits in __syncthreads\n"
      "  thread 4 waits in __syncthreads\n"
      "  1 of 64 threads have returned, thread 3 first");
}

TEST_F(EmulationDeathTest, AShuffleThatALaneLeavesOutNamesTheLanes) {
  auto out = DeviceBuffer<int>::create(32).value();
  EXPECT_DEATH(
      {
        run_missed_shuffle(out.data(), nullptr);
        cudaDeviceSynchronize();
      },
      "missed_shuffle.*\n  thread 0 waits in __shfl_sync of lanes ffffffff\n  thread 8 waits");
}

TEST_F(EmulationDeathTest, AStoreBehindAnAllocationFaults) {
  auto out = DeviceBuffer<float>::create(1024).value();
  EXPECT_DEATH(
      {
        run_store(out.data(), 1024, nullptr);
        cudaDeviceSynchronize();
      },
      "");
}

TEST_F(EmulationDeathTest, AMatrixProductNeedsSm80) {
  setenv("STRATA_EMULATED_SM", "75", 1);
  EXPECT_DEATH(
      {
        auto matrix = DeviceBuffer<int8_t>::create(512).value();
        auto product = DeviceBuffer<int>::create(128).value();
        run_mma(matrix.data(), matrix.data(), product.data(), 16, nullptr);
        cudaDeviceSynchronize();
      },
      "multiply.*mma_s8 needs sm_80");
  EXPECT_DEATH(
      {
        auto matrices = DeviceBuffer<float>::create(256).value();
        run_mma_floats(matrices.data(), matrices.data(), matrices.data(), nullptr);
        cudaDeviceSynchronize();
      },
      "multiply_floats.*mma_tf32 needs sm_80");
  unsetenv("STRATA_EMULATED_SM");
}

TEST(Emulation, NewMemoryIsNotANumber) {
  const auto buffer = DeviceBuffer<float>::create(100).value();
  const std::vector<float> values = buffer.download().value();
  for (const float value : values) EXPECT_TRUE(std::isnan(value));
}

TEST(Emulation, ACopyThatNobodyWaitsForIsNotThere) {
  const auto in = DeviceBuffer<uint4>::of(std::vector<uint4>(32, uint4{1, 2, 3, 4})).value();
  const auto out = DeviceBuffer<uint4>::create(32).value();
  run_unawaited_copy(in.data(), out.data(), nullptr);
  const std::vector<uint4> values = out.download().value();
  for (const uint4& value : values) EXPECT_EQ(value.x, ~0u) << "dynamic shared memory as it was at the start";
}

TEST(Emulation, MemoryIsCounted) {
  std::size_t free_before = 0, free_now = 0, total = 0;
  emulation::set_memory_bytes(std::size_t{1} << 30);
  ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
  EXPECT_EQ(total, std::size_t{1} << 30);
  {
    const auto buffer = DeviceBuffer<std::byte>::create(1 << 20).value();
    ASSERT_EQ(cudaMemGetInfo(&free_now, &total), cudaSuccess);
    EXPECT_EQ(free_before - free_now, std::size_t{1} << 20);
    EXPECT_FALSE(DeviceBuffer<std::byte>::create(std::size_t{1} << 30).has_value());
  }
  ASSERT_EQ(cudaMemGetInfo(&free_now, &total), cudaSuccess);
  EXPECT_EQ(free_now, free_before);
  cudaGetLastError();
  emulation::set_memory_bytes(std::size_t{8} << 30);
}

TEST(Emulation, CopiesBeyondAnAllocationAreRefused) {
  const auto buffer = DeviceBuffer<float>::create(100).value();
  std::vector<float> values(101);
  EXPECT_EQ(cudaMemcpy(buffer.data(), values.data(), 101 * sizeof(float), cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(values.data(), values.data() + 50, 50 * sizeof(float), cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue)
      << "that is no device memory";
  EXPECT_EQ(cudaMemcpy(values.data(), buffer.data() + 50, 50 * sizeof(float), cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
