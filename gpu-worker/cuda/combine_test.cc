// The sum of the experts' parts against expert::combine_parts and StreamMixer::add.
#include "gpu-worker/cuda/combine.h"

#include "gpu-worker/cuda/dense_test_support.h"
#include "services/expert/expert.h"

namespace strata::gpu_worker::cuda::tests {
namespace {

struct CombineCase {
  uint32_t rows = 3, hidden = 96, top_k = 10, streams = 4;
  bool has_remote = true, has_shared = true;
  uint32_t away_shift = 0;  // floats from an aligned place to the parts in host memory
};

void expect_same_sum(const CombineCase& c) {
  Generator random(9);
  const std::size_t pairs = std::size_t{c.rows} * c.top_k;
  const auto weights = random_floats(random, pairs), parts = random_floats(random, pairs * c.hidden),
             away = random_floats(random, pairs * c.hidden),
             shared = random_floats(random, std::size_t{c.rows} * c.hidden),
             gates = random_floats(random, c.rows, 3.0f),
             inject = random_floats(random, std::size_t{c.rows} * c.streams),
             x = random_floats(random, std::size_t{c.rows} * c.streams * c.hidden);
  auto pinned = PinnedBuffer<float>::create(away.size() + c.away_shift);
  ASSERT_TRUE(pinned.has_value());
  std::copy(away.begin(), away.end(), pinned->span().begin() + c.away_shift);
  std::vector<uint64_t> remote(pairs);
  std::vector<const float*> part_of(pairs);
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const bool is_away = c.has_remote && random.below(2) == 0;
    remote[pair] = is_away ? reinterpret_cast<uint64_t>(pinned->data() + c.away_shift + pair * c.hidden) : 0;
    part_of[pair] = (is_away ? away : parts).data() + pair * c.hidden;
  }

  const auto d_weights = on_device(weights), d_parts = on_device(parts), d_shared = on_device(shared),
             d_gates = on_device(gates), d_inject = on_device(inject), d_x = on_device(x);
  const auto d_remote = on_device(remote);
  const auto d_y = device_zeros<float>(std::size_t{c.rows} * c.hidden);
  combine({.rows = c.rows,
           .hidden = c.hidden,
           .top_k = c.top_k,
           .streams = c.streams,
           .weights = d_weights.data(),
           .parts = d_parts.data(),
           .remote = c.has_remote ? d_remote.data() : nullptr,
           .shared = {c.has_shared ? d_shared.data() : nullptr, c.hidden},
           .shared_gate = d_gates.data(),
           .inject = d_inject.data(),
           .x = d_x.data(),
           .y = d_y.data()},
          nullptr);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  std::vector<float> y(std::size_t{c.rows} * c.hidden), expected_x = x;
  for (uint32_t row = 0; row < c.rows; ++row) {
    float* of_row = y.data() + std::size_t{row} * c.hidden;
    expert::combine_parts(std::span(part_of).subspan(row * c.top_k, c.top_k),
                          std::span(weights).subspan(row * c.top_k, c.top_k), c.hidden, of_row);
    if (c.has_shared)
      quant::add_scaled_f32(quant::sigmoid_f32(gates[row]), shared.data() + std::size_t{row} * c.hidden,
                            of_row, c.hidden);
    for (uint32_t s = 0; s < c.streams; ++s) {
      const std::size_t stream = std::size_t{row} * c.streams + s;
      quant::add_scaled_f32(inject[stream], of_row, expected_x.data() + stream * c.hidden, c.hidden);
    }
  }
  expect_same_bits(values_of(d_y), y, "sum");
  expect_same_bits(values_of(d_x), expected_x, "stream");
}

TEST(CombineTest, PartsHereAndInHostMemory) { expect_same_sum({}); }
TEST(CombineTest, AllPartsHere) { expect_same_sum({.has_remote = false}); }
TEST(CombineTest, WithoutASharedExpert) { expect_same_sum({.has_shared = false}); }
TEST(CombineTest, WithoutStreams) { expect_same_sum({.streams = 0}); }
TEST(CombineTest, ManyRows) {
  expect_same_sum({.rows = 67, .hidden = 324});
  expect_same_sum({.rows = 67, .hidden = 36, .top_k = 17, .streams = 3, .away_shift = 1});
  expect_same_sum({.rows = 67, .hidden = 37, .has_remote = false});
}
TEST(CombineTest, OddSizes) {
  expect_same_sum({.rows = 1, .hidden = 33, .top_k = 1, .streams = 2});
  expect_same_sum({.rows = 5, .hidden = 7, .top_k = 32, .streams = 8});
}

}  // namespace
}  // namespace strata::gpu_worker::cuda::tests
