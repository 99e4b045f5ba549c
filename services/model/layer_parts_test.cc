// The parts of a layer that can be judged alone: kernels, router, block choice, hashes, rotations, cuts of a
// history.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "services/model/moe_block.h"
#include "services/model/ngram_embedding.h"
#include "services/model/rope.h"
#include "services/model/row_kernel_tables.h"
#include "services/model/row_kernels.h"
#include "services/model/sparse_attention.h"

namespace strata::model {
namespace {

std::vector<float> random_values(std::size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(static_cast<int32_t>(random() % 20001) - 10000) * 0x1p-11f;
  return values;
}

class RowKernelsTest : public ::testing::TestWithParam<uint32_t> {};

// The variant that this machine chooses against the one of plain loops, bit for bit, at odd and even sizes.
TEST_P(RowKernelsTest, EveryVariantGivesTheSameBits) {
  const uint32_t n = GetParam();
  const RowKernels& plain = scalar::kRowKernels;
  const RowKernels& chosen = row_kernels();
  const auto a = random_values(4 * n, 1), b = random_values(4 * n, 2),
             square = random_values(std::size_t{n} * n, 3);
  const auto expect_same = [&](const auto& compute) {
    std::vector<float> x = random_values(n, 4), y = x;
    compute(plain, x.data());
    compute(chosen, y.data());
    EXPECT_EQ(x, y);
  };
  expect_same([&](const RowKernels& kernels, float* y) { kernels.scale_by(a.data(), 0.3f, b.data(), n, y); });
  expect_same([&](const RowKernels& kernels, float* y) {
    kernels.mix_streams(a.data(), b.data(), 4, n, n / 3, n, y);
  });
  expect_same([&](const RowKernels& kernels, float* y) { kernels.exp_below(y, 2.5f, n); });
  expect_same([&](const RowKernels& kernels, float* y) { kernels.gate(y, 0.7f, a.data(), n); });
  for (const uint32_t tap_count : {1u, 3u, 4u}) {
    const float* taps[] = {a.data(), a.data() + n, a.data() + 2 * n, a.data() + 3 * n};
    expect_same([&](const RowKernels& kernels, float* y) {
      kernels.conv_silu(taps, tap_count, b.data(), n / 4, n, y);
    });
  }
  auto state_of_plain = square, state_of_chosen = square;
  expect_same([&](const RowKernels& kernels, float* out) {
    auto& state = &kernels == &plain ? state_of_plain : state_of_chosen;
    kernels.delta_step({state.data(), a.data(), a.data() + n, b.data(), 0.9f, 0.4f, n, out});
  });
  EXPECT_EQ(state_of_plain, state_of_chosen);
}

TEST_P(RowKernelsTest, TheDeltaStepIsTheRecurrence) {
  const uint32_t n = GetParam();
  auto state = random_values(std::size_t{n} * n, 5);
  auto q = random_values(n, 6), k = random_values(n, 7), v = random_values(n, 8);
  for (uint32_t i = 0; i < n; ++i) k[i] *= 0.1f;
  std::vector<double> expected(state.begin(), state.end());
  const double decay = 0.75, beta = 0.5;
  for (double& s : expected) s *= decay;
  std::vector<double> out(n, 0.0);
  for (uint32_t j = 0; j < n; ++j) {
    double memory = 0;
    for (uint32_t i = 0; i < n; ++i) memory += expected[i * n + j] * k[i];
    const double delta = beta * (static_cast<double>(v[j]) - memory);
    for (uint32_t i = 0; i < n; ++i) {
      expected[i * n + j] += k[i] * delta;
      out[j] += expected[i * n + j] * q[i];
    }
  }
  std::vector<float> found(n);
  row_kernels().delta_step({state.data(), q.data(), k.data(), v.data(), 0.75f, 0.5f, n, found.data()});
  for (uint32_t j = 0; j < n; ++j) EXPECT_NEAR(found[j], out[j], 1e-4 * n) << j;
  for (std::size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(state[i], expected[i], 1e-4 * n) << i;
}

// docs/model.md, word by word: 16 lanes of neighbouring keys, added by halves.
TEST_P(RowKernelsTest, TheDeltaStepSumsInLanes) {
  const uint32_t n = GetParam(), keys = (n + 15) / 16;
  auto state = random_values(std::size_t{n} * n, 9);
  const auto q = random_values(n, 10), k = random_values(n, 11), v = random_values(n, 12);
  const float decay = 0.9f, beta = 0.4f;
  const auto sum_over_keys = [&](const auto& add) {
    float lane[16] = {};
    for (uint32_t i = 0; i < n; ++i) lane[i / keys] = add(i, lane[i / keys]);
    for (uint32_t s = 8; s > 0; s /= 2) {
      for (uint32_t l = 0; l < s; ++l) lane[l] += lane[l + s];
    }
    return lane[0];
  };
  auto expected = state;
  std::vector<float> out(n), found(n);
  for (uint32_t j = 0; j < n; ++j) {
    const float m = sum_over_keys(
        [&](uint32_t i, float lane) { return std::fmaf(decay * expected[i * n + j], k[i], lane); });
    const float delta = beta * (v[j] - m);
    out[j] = sum_over_keys([&](uint32_t i, float lane) {
      float& s = expected[i * n + j];
      s = std::fmaf(k[i], delta, decay * s);
      return std::fmaf(s, q[i], lane);
    });
  }
  row_kernels().delta_step({state.data(), q.data(), k.data(), v.data(), decay, beta, n, found.data()});
  EXPECT_EQ(found, out);
  EXPECT_EQ(state, expected);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RowKernelsTest, ::testing::Values(1, 3, 8, 17, 32, 65, 96, 128, 160));

TEST(RouteTest, ChoosesTheLargestAndTheLowerIdOfEquals) {
  std::vector<float> logits = {1, 3, 2, 3, 0, 2};
  std::vector<uint16_t> ids(4);
  std::vector<float> weights(4);
  route(logits, ids, weights);
  EXPECT_EQ(ids, (std::vector<uint16_t>{1, 3, 2, 5}));
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_NEAR(weights[0] + weights[1] + weights[2] + weights[3], 1.0, 1e-6);
  EXPECT_NEAR(weights[0] / weights[2], std::exp(1.0), 1e-5);
}

TEST(RouteTest, GivesDistinctValidExpertsEvenForNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (std::vector<float> logits : {std::vector<float>(5, nan), std::vector<float>{nan, 1, nan, 2, 3}}) {
    std::vector<uint16_t> ids(3);
    std::vector<float> weights(3);
    route(logits, ids, weights);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_LT(ids[i], 5);
      EXPECT_NE(ids[i], ids[(i + 1) % 3]);
    }
  }
}

TEST(ChooseBlocksTest, TakesTheLargestAscendingAndTheLowerNumberOfEquals) {
  std::vector<uint32_t> chosen;
  const auto choose = [&](const std::vector<float>& scores, uint32_t count) {
    std::vector<float> scratch(scores.size());
    choose_blocks(scores, count, scratch, chosen);
    return chosen;
  };
  EXPECT_EQ(choose({1, 5, 3, 4}, 2), (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(choose({0, 0, 7, 0, 0}, 3), (std::vector<uint32_t>{0, 1, 2})) << "relu makes many zeros";
  EXPECT_EQ(choose({2, 1, 2, 1, 2}, 4), (std::vector<uint32_t>{0, 1, 2, 4}));
  EXPECT_EQ(choose({2, 1}, 2), (std::vector<uint32_t>{0, 1}));
  EXPECT_TRUE(choose({2, 1}, 0).empty());
}

// The constants of the released model and rows that are known for them.
TEST(NgramRowsTest, AreThoseOfTheReleasedModel) {
  ModelConfig config;
  config.ngram_size = 3;
  config.ngram_heads = 8;
  config.ngram_cut_token = 248044;
  config.ngram_multipliers = {23703573157769, 20109073645365, 8052911324071};
  config.ngram_sizes = {20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
                        20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171};
  uint64_t offset = 0;
  for (const uint64_t size : config.ngram_sizes) {
    config.ngram_offsets.push_back(offset);
    offset += size;
  }
  const auto rows = [&](const std::vector<int32_t>& context) {
    std::vector<uint64_t> found(16);
    ngram_table_rows(config, context, found);
    return found;
  };
  const std::vector<uint64_t> after_start = {16410909,  39682429,  55103279,  60931720,  87006904,  116506179,
                                             131512017, 152932897, 169641436, 182022480, 209277433, 237891023,
                                             256841529, 277007269, 290665954, 300984276};
  EXPECT_EQ(rows({9707, 248044, 248044}), after_start);
  EXPECT_EQ(rows({9707, 248044, 11}), after_start) << "the cut hides what is before it";
  EXPECT_EQ(rows({11, 9707, 248044}),
            (std::vector<uint64_t>{18158303, 36390029, 45652312, 70783524, 98191154, 114024957, 127804916,
                                   159566246, 175132467, 192583600, 217919476, 237199054, 259336807,
                                   261799367, 289359313, 307699687}));
  EXPECT_NE(rows({248044, 11, 9707}), rows({248044, 248044, 248044}))
      << "a cut token does not cut its own context";
}

TEST(RopeTest, TurnsPairsByThePosition) {
  const Rope rope({.dims = 4, .base = 100.0f});
  std::vector<float> turn(4), head = {1, 2, 3, 4, 5};
  rope.turn_at(7, turn.data());
  EXPECT_FLOAT_EQ(turn[0], static_cast<float>(std::cos(7.0)));
  EXPECT_FLOAT_EQ(turn[1], static_cast<float>(std::cos(0.7)));
  EXPECT_FLOAT_EQ(turn[3], static_cast<float>(std::sin(0.7)));
  rope.rotate(turn.data(), head.data());
  EXPECT_NEAR(head[0], std::cos(7.0) - 3 * std::sin(7.0), 1e-6);
  EXPECT_NEAR(head[2], 3 * std::cos(7.0) + std::sin(7.0), 1e-6);
  EXPECT_EQ(head[4], 5.0f) << "beyond the rotated width";
}

TEST(RopeTest, YarnKeepsFastPairsAndStretchesSlowOnes) {
  const RopeConfig plain_config{.dims = 64, .base = 1e7f};
  RopeConfig yarn_config = plain_config;
  yarn_config.factor = 4.0f;
  yarn_config.original_context = 262144;
  const Rope plain(plain_config), yarn(yarn_config);
  const double magnitude = 1 + 0.1 * std::log(4.0);
  std::vector<float> a(64), b(64);
  constexpr uint32_t kPosition = 1000;
  plain.turn_at(kPosition, a.data());
  yarn.turn_at(kPosition, b.data());
  EXPECT_NEAR(b[0], magnitude * static_cast<double>(a[0]), 1e-6);
  EXPECT_NEAR(b[32], magnitude * static_cast<double>(a[32]), 1e-6);
  const double slowest = kPosition * std::pow(1e7, -62.0 / 64.0);
  EXPECT_NEAR(b[63], magnitude * std::sin(slowest / 4), 1e-6);
}

TEST(HistoryTest, ReachesBackFromTheWindowIntoTheState) {
  const std::vector<float> history = {10, 11, 12};
  const std::vector<float> window = {20, 21, 22, 23};
  const Segment segment{.sequence = nullptr, .row_begin = 1, .row_count = 3, .position = 50};
  const HistoryTaps taps{window.data(), history.data(), 1, 3};
  EXPECT_EQ(*taps.row(segment, 1, 0), 21);
  EXPECT_EQ(*taps.row(segment, 1, 1), 12);
  EXPECT_EQ(*taps.row(segment, 1, 3), 10);
  EXPECT_EQ(*taps.row(segment, 3, 2), 21);
  EXPECT_EQ(*taps.row(segment, 3, 3), 12);

  std::vector<float> kept = history;
  append_history(segment, window.data(), 1, 3, kept.data());
  EXPECT_EQ(kept, (std::vector<float>{21, 22, 23}));
  kept = history;
  append_history({.sequence = nullptr, .row_begin = 2, .row_count = 1, .position = 50}, window.data(), 1, 3,
                 kept.data());
  EXPECT_EQ(kept, (std::vector<float>{11, 12, 22}));
}

}  // namespace
}  // namespace strata::model
