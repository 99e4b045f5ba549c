// What kernels are built from, each against a plain loop. Runs in the emulation and on a GPU: where both
// pass, both mean the same.

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gpu-worker/cuda/device_buffer.h"
#include "gpu-worker/cuda/device_code_test_kernels.h"

namespace strata::gpu_worker::cuda {
namespace {

template <class T>
DeviceBuffer<T> on_device(const std::vector<T>& values) {
  auto buffer = DeviceBuffer<T>::of(values);
  CHECK(buffer.has_value(), "{}", buffer.error().message());
  return std::move(*buffer);
}
template <class T>
DeviceBuffer<T> device_zeros(std::size_t count) {
  return on_device(std::vector<T>(count));
}
template <class T>
std::vector<T> values_of(const DeviceBuffer<T>& buffer) {
  auto values = buffer.download();
  CHECK(values.has_value(), "{}", values.error().message());
  return std::move(*values);
}
template <class T>
std::vector<T> random_values(std::size_t count, T low, T high) {
  std::mt19937 random(static_cast<uint32_t>(count));
  std::uniform_int_distribution<int> value(low, high);
  std::vector<T> values(count);
  for (T& v : values) v = static_cast<T>(value(random));
  return values;
}

TEST(DeviceCode, BarriersSeparateWritesFromReads) {
  for (const uint32_t count : {1u, 31u, 32u, 33u, 256u, 1024u}) {
    std::vector<float> in(count);
    for (uint32_t i = 0; i < count; ++i) in[i] = static_cast<float>(i);
    const auto source = on_device(in);
    const auto target = device_zeros<float>(count);
    for (const uint32_t turns : {3u, 8u}) {
      run_reversal(source.data(), target.data(), count, turns, nullptr);
      const std::vector<float> out = values_of(target);
      for (uint32_t i = 0; i < count; ++i)
        ASSERT_EQ(out[i], in[turns % 2 == 0 ? i : count - 1 - i]) << count << " " << turns << " " << i;
    }
  }
}

TEST(DeviceCode, WarpsExchangeValues) {
  constexpr uint32_t kThreads = 96;
  const std::vector<int> in = random_values<int>(kThreads, -1000, 1000);
  const auto source = on_device(in);
  const auto target = device_zeros<int>(6 * kThreads);
  run_warp_words(source.data(), target.data(), kThreads, nullptr);
  const std::vector<int> out = values_of(target);
  for (uint32_t i = 0; i < kThreads; ++i) {
    const uint32_t lane = i % 32, warp = i - lane;
    uint32_t odd = 0;
    int sum = 0;
    for (uint32_t j = 0; j < 32; ++j) {
      odd |= static_cast<uint32_t>(in[warp + j] & 1) << j;
      sum += in[warp + j];
    }
    EXPECT_EQ(out[0 * kThreads + i], in[warp + (lane ^ 1)]);
    EXPECT_EQ(out[1 * kThreads + i], lane >= 2 ? in[i - 2] : in[i]);
    EXPECT_EQ(out[2 * kThreads + i], lane % 16 + 3 < 16 ? in[i + 3] : in[i]);
    EXPECT_EQ(out[3 * kThreads + i], in[warp + 5]);
    EXPECT_EQ(static_cast<uint32_t>(out[4 * kThreads + i]), odd);
    EXPECT_EQ(out[5 * kThreads + i], sum);
  }
}

TEST(DeviceCode, HalvesOfAWarpMeetForThemselves) {
  constexpr uint32_t kThreads = 64;
  const std::vector<int> in = random_values<int>(kThreads, -100, 100);
  const auto source = on_device(in);
  const auto target = device_zeros<int>(kThreads);
  run_halves(source.data(), target.data(), kThreads, nullptr);
  const std::vector<int> out = values_of(target);
  for (uint32_t i = 0; i < kThreads; ++i) {
    int sum = 0;
    for (uint32_t j = 0; j < 16; ++j) sum += in[i / 16 * 16 + j];
    EXPECT_EQ(out[i], i % 32 < 16 ? sum : sum * 16 * 16);
  }
}

TEST(DeviceCode, AtomicsLoseNothing) {
  constexpr uint32_t kBlocks = 50;
  const std::vector<int> in = random_values<int>(kBlocks * 64, -5000, 5000);
  const auto source = on_device(in);
  const auto totals = on_device<AtomicTotals>({{0, INT32_MIN, INT32_MAX, 0.0f}});
  run_atomics(source.data(), totals.data(), kBlocks, nullptr);
  const AtomicTotals out = values_of(totals)[0];
  unsigned sum = 0;
  for (const int value : in) sum += static_cast<unsigned>(value);
  EXPECT_EQ(out.sum, sum);
  EXPECT_EQ(out.max, *std::max_element(in.begin(), in.end()));
  EXPECT_EQ(out.min, *std::min_element(in.begin(), in.end()));
  EXPECT_EQ(out.ones, 3200.0f);
}

TEST(DeviceCode, MatrixProductsHaveTheDocumentedFragments) {
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  if (major < 8) GTEST_SKIP() << "needs sm_80, this is sm_" << major << "x";
  for (const uint32_t k : {16u, 32u}) {
    const std::vector<int8_t> a = random_values<int8_t>(16 * k, -128, 127);
    const std::vector<int8_t> b = random_values<int8_t>(k * 8 + 1, -128, 127);
    const auto device_a = on_device(a);
    const auto device_b = on_device(b);
    const auto device_d = device_zeros<int>(16 * 8);
    run_mma(device_a.data(), device_b.data(), device_d.data(), k, nullptr);
    const std::vector<int> d = values_of(device_d);
    for (uint32_t row = 0; row < 16; ++row) {
      for (uint32_t column = 0; column < 8; ++column) {
        int sum = 0;
        for (uint32_t i = 0; i < k; ++i) sum += a[row * k + i] * b[i * 8 + column];
        ASSERT_EQ(d[row * 8 + column], sum) << k << " " << row << " " << column;
      }
    }
  }
}

TEST(DeviceCode, FloatMatrixProductsHaveTheDocumentedFragmentsAndAccuracy) {
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  if (major < 8) GTEST_SKIP() << "needs sm_80, this is sm_" << major << "x";
  std::vector<float> a(16 * 8), b(8 * 8);
  for (std::vector<float>* values : {&a, &b}) {
    const std::vector<int> numerators = random_values<int>(static_cast<uint32_t>(values->size()), -999, 999);
    for (std::size_t i = 0; i < values->size(); ++i)
      (*values)[i] = static_cast<float>(numerators[i]) / 999.0f;
  }
  const auto device_a = on_device(a), device_b = on_device(b), device_d = device_zeros<float>(2 * 16 * 8);
  run_mma_floats(device_a.data(), device_b.data(), device_d.data(), nullptr);
  const std::vector<float> d = values_of(device_d);
  double rounded_error = 0.0;
  for (uint32_t row = 0; row < 16; ++row) {
    for (uint32_t column = 0; column < 8; ++column) {
      double sum = 0.0;
      for (uint32_t i = 0; i < 8; ++i) sum += double{a[row * 8 + i]} * b[i * 8 + column];
      const uint32_t at = row * 8 + column;
      // Eight products of numbers up to 1: each operand is off by half a unit of its 11 bits, or of its 22.
      ASSERT_NEAR(d[at], sum, 8 * 0x1p-11) << row << " " << column;
      ASSERT_NEAR(d[128 + at], sum, 8 * 0x1p-21) << row << " " << column;
      rounded_error = std::max(rounded_error, std::abs(d[at] - sum));
    }
  }
  EXPECT_GT(rounded_error, 0x1p-14) << "were the operands rounded at all?";
}

TEST(DeviceCode, ProductsOfParts) {
  constexpr uint32_t kCount = 1000;
  const std::vector<int8_t> a = random_values<int8_t>(4 * kCount, -128, 127);
  const std::vector<int8_t> b = random_values<int8_t>(4 * kCount + 4, -128, 127);
  const std::vector<int> sums = random_values<int>(kCount, -100000, 100000);
  const auto device_a = on_device(a), device_b = on_device(b);
  const auto device_sums = on_device(sums);
  const auto device_out = device_zeros<int>(3 * kCount);
  run_dot4(reinterpret_cast<const int*>(device_a.data()), reinterpret_cast<const int*>(device_b.data()),
           device_sums.data(), device_out.data(), kCount, nullptr);
  const std::vector<int> out = values_of(device_out);
  for (uint32_t i = 0; i < kCount; ++i) {
    int sum = sums[i];
    for (uint32_t j = 4 * i; j < 4 * i + 4; ++j) sum += a[j] * b[j];
    ASSERT_EQ(out[i], sum) << i;
    int16_t halves[2];
    std::memcpy(halves, &a[4 * i], sizeof(halves));
    ASSERT_EQ(out[kCount + i], sums[i] + halves[0] * b[4 * i] + halves[1] * b[4 * i + 1]) << i;
    ASSERT_EQ(out[2 * kCount + i], sums[i] + halves[0] * b[4 * i + 2] + halves[1] * b[4 * i + 3]) << i;
  }
}

TEST(DeviceCode, AsynchronousCopiesArriveInOrder) {
  constexpr uint32_t kStages = 5;
  std::vector<uint4> in(kStages * 128);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = {i, i + 1, i + 2, i + 3};
  const auto source = on_device(in);
  const auto target = device_zeros<uint4>(in.size());
  run_async_copy(source.data(), target.data(), kStages, nullptr);
  const std::vector<uint4> out = values_of(target);
  for (uint32_t i = 0; i < in.size(); ++i) {
    const uint4 expected = in[i / 128 * 128 + 127 - i % 128];
    ASSERT_EQ(out[i].x, expected.x) << i;
    ASSERT_EQ(out[i].w, expected.w) << i;
  }
}

TEST(DeviceCode, HalvesAreRoundedToNearestEven) {
  std::vector<float> in;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    // Every half, as a float: computed from its parts.
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const auto mantissa = static_cast<float>(bits & 0x3ff);
    if (exponent == 31) continue;
    const float value =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024.0f, exponent - 25);
    const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
    in.push_back(sign * value);
  }
  const std::size_t exact = in.size();
  const auto add = [&](float value, float nearest) {
    in.push_back(value);
    in.push_back(nearest);
  };
  // Pairs: a value, and the half that it rounds to.
  add(1.0f + 0x1p-11f, 1.0f);            // a tie, down to even
  add(1.0f + 0x3p-11f, 1.0f + 0x1p-9f);  // a tie, up to even
  add(std::nextafter(1.0f + 0x1p-11f, 2.0f), 1.0f + 0x1p-10f);
  add(65519.0f, 65504.0f);
  add(65520.0f, INFINITY);
  add(-1e30f, -INFINITY);
  add(INFINITY, INFINITY);
  add(0x1p-25f, 0.0f);  // half of the smallest: a tie
  add(std::nextafter(0x1p-25f, 1.0f), 0x1p-24f);
  add(0x3p-25f, 0x1p-23f);
  add(-0x1p-30f, -0.0f);
  const auto source = on_device(in);
  const auto target = device_zeros<float>(in.size());
  const auto halves = device_zeros<uint16_t>(in.size());
  run_half_round_trip(source.data(), halves.data(), target.data(), static_cast<uint32_t>(in.size()), nullptr);
  const std::vector<float> out = values_of(target);
  for (std::size_t i = 0; i < exact; ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(in[i])) << in[i];
  for (std::size_t i = exact; i < in.size(); i += 2) {
    EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(in[i + 1])) << in[i];
  }
}

TEST(DeviceCode, BitWords) {
  const auto in = on_device<uint32_t>({0x80f17a04u, 0xdeadbeefu, 0x0000f417u & 0xffffu});
  const auto out = device_zeros<uint32_t>(5);
  run_bit_words(in.data(), out.data(), nullptr);
  // Nibbles of the selector from below: 7 is the top byte of the second word, 1 and 4 bytes, f is 7: only
  // three bits of each count.
  EXPECT_THAT(values_of(out), testing::ElementsAre(0xdeef7adeu, 12u, 3u, 0u, 0x205e8f01u));
}

TEST(DeviceCode, AKernelWaitsForAWordOfTheHost) {
  auto words = PinnedBuffer<uint32_t>::create(2);
  ASSERT_TRUE(words.has_value());
  uint32_t* word = words->data();
  uint32_t* answer = word + 1;
  std::atomic_ref(*word).store(0);
  std::atomic_ref(*answer).store(0);
  const auto counter = device_zeros<uint32_t>(1);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  run_wait_for(word, 7, counter.data(), answer, stream);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(std::atomic_ref(*answer).load(), 0u);
  std::atomic_ref(*word).store(7, std::memory_order_release);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(std::atomic_ref(*answer).load(), 8u);
  EXPECT_THAT(values_of(counter), testing::ElementsAre(1u));
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
