// What is planned of a request, and that the parts have the bits of compute_expert however an expert is split
// and whoever computes the pieces.

#include "cpu-expert-worker/expert_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cpu-expert-worker/test_layer.h"

namespace strata::cpu_expert_worker {
namespace {

using quant::TensorType;

constexpr uint32_t kHidden = TestLayer::kHidden;
constexpr uint32_t kExperts = TestLayer::kExperts;
constexpr uint32_t kTokensMax = 20;

class ExpertJobTest : public testing::Test {
 protected:
  ExpertJobTest() {
    geometry_ = {.hidden = kHidden, .tokens_max = kTokensMax, .pairs_max = kTokensMax * kExperts};
    run_ = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
    auto board = shm::Board::create(shm::segment_name(run_, "board", shm::random_instance_id()), geometry_);
    EXPECT_TRUE(board) << board.error().message();
    board_.emplace(std::move(*board));
  }
  ~ExpertJobTest() override { shm::remove_stale_segments(run_); }

  // `tokens` tokens for each of the experts 0, 1, ... as 8-bit rows on the board.
  void write_request(const std::vector<uint32_t>& tokens_per_expert) {
    quant::tests::Generator random(3);
    for (uint32_t token = 0; token < kTokensMax; ++token) {
      const auto row = quant::tests::activations(random, kHidden);
      quant::quantize_q8(row, board_->activations(token));
    }
    uint32_t pairs = 0;
    for (uint16_t expert = 0; expert < tokens_per_expert.size(); ++expert) {
      for (uint32_t i = 0; i < tokens_per_expert[expert]; ++i) {
        // Another token first for each expert.
        const auto token = static_cast<uint16_t>((i + expert) % kTokensMax);
        board_->pairs()[pairs++] = {.token = token, .expert = expert};
      }
    }
    board_->header().request = {.ticket = ++ticket_, .layer = 0, .tokens = kTokensMax, .pair_count = pairs};
  }

  std::vector<float> reference(const TestLayer& layer) const {
    const shm::BoardRequest& request = board_->header().request;
    const quant::Activations input = quant::Activations::from_q8(board_->activations(0), request.tokens,
                                                                 kHidden, geometry_.activation_row_bytes());
    std::vector<float> parts(std::size_t{request.pair_count} * kHidden);
    expert::ExpertScratch scratch;
    for (uint32_t pair = 0; pair < request.pair_count; ++pair) {
      const uint32_t token = board_->pairs()[pair].token;
      float* y = parts.data() + std::size_t{pair} * kHidden;
      expert::compute_expert(layer.layer.expert(board_->pairs()[pair].expert), input, {&token, 1}, {&y, 1},
                             quant::Numerics::kReproducible, scratch);
    }
    return parts;
  }
  std::vector<float> parts() const {
    std::vector<float> values;
    for (uint32_t pair = 0; pair < board_->header().request.pair_count; ++pair)
      values.insert(values.end(), board_->part(pair), board_->part(pair) + kHidden);
    return values;
  }
  void forget_parts() const {
    for (uint32_t pair = 0; pair < geometry_.pairs_max; ++pair)
      std::fill_n(board_->part(pair), kHidden, -1e30f);
  }

  shm::BoardGeometry geometry_;
  std::string run_;
  std::optional<shm::Board> board_;
  uint64_t ticket_ = 0;
};

// All lanes on this thread, in turn, piece by piece: the pieces of an expert are computed by different
// scratches in an order that changes with the seed.
void compute_in_turn(ExpertJob& job, WorkShares& shares, std::vector<JobScratch>& scratches, uint32_t seed) {
  quant::tests::Generator random(seed);
  shares.open(job.units());
  const auto round = shares.current();
  for (const Stage stage : {Stage::kWhole, Stage::kIntermediate, Stage::kOutput}) {
    while (!shares.complete(round, stage)) {
      const uint32_t lane = random.below(shares.lanes());
      const auto claim = shares.take(round, stage, lane);
      if (claim.empty()) continue;
      job.compute(stage, claim, scratches[lane]);
      shares.finish(round, stage, lane, claim);
    }
  }
}

TEST_F(ExpertJobTest, PartsHaveTheSameBitsForAnyThreadsExpertsTokensAndSplit) {
  const TestLayer::Types kinds[] = {{TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kIQ4_NL},
                                    {TensorType::kQ8_0, TensorType::kQ2_0, TensorType::kBF16}};
  uint32_t split_seen = 0, whole_seen = 0;
  for (const TestLayer::Types& types : kinds) {
    for (const uint32_t width : {192U, 64U}) {
      const TestLayer layer(types, width);
      for (uint32_t experts = 1; experts <= 9; ++experts) {
        for (const uint32_t tokens : {1U, 2U, 3U, 7U, 20U}) {
          std::vector<uint32_t> per_expert(experts, tokens);
          if (tokens == 7) per_expert[0] = kTokensMax;  // one that is much larger than the others
          write_request(per_expert);
          const std::vector<float> want = reference(layer);
          for (uint32_t lanes = 1; lanes <= 5; ++lanes) {
            for (const CutRules& rules : {CutRules{},
                                          {.split = SplitRule::kNone},
                                          {SplitRule::kAll, 1},
                                          {SplitRule::kByCost, 1 << 20}}) {
              ExpertJob job(layer.layers(), geometry_, lanes, rules);
              WorkShares shares(lanes);
              std::vector<JobScratch> scratches(lanes);
              for (JobScratch& scratch : scratches) job.prepare(scratch);
              const Status status = job.read(*board_);
              ASSERT_TRUE(status.ok()) << status.message();
              forget_parts();
              compute_in_turn(job, shares, scratches, experts * 100 + tokens);
              ASSERT_EQ(parts(), want) << experts << " experts of " << tokens << " tokens, " << lanes
                                       << " lanes, rule " << static_cast<int>(rules.split);
              split_seen += job.units()[1] > 0 ? 1 : 0;
              whole_seen += job.units()[0] > 0 ? 1 : 0;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(split_seen, 100U);
  EXPECT_GT(whole_seen, 100U);
}

// What lies in a scratch belongs to one request: the next one's expert of the same place must not meet it.
TEST_F(ExpertJobTest, NothingOfOneRequestIsLeftForTheNext) {
  const TestLayer layer({TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ4_0}, 192);
  ExpertJob job(layer.layers(), geometry_, 3, {.split = SplitRule::kAll});
  WorkShares shares(3);
  std::vector<JobScratch> scratches(3);
  for (JobScratch& scratch : scratches) job.prepare(scratch);
  for (uint32_t request = 0; request < 20; ++request) {
    write_request({1 + request % 3, 0, 1 + request % 5});
    ASSERT_TRUE(job.read(*board_).ok());
    compute_in_turn(job, shares, scratches, request);
    ASSERT_EQ(parts(), reference(layer)) << request;
  }
}

TEST_F(ExpertJobTest, SplitsWhatDoesNotDivideAmongTheThreads) {
  const TestLayer layer({TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ4_0}, 192);
  const auto whole_of = [&](uint32_t lanes, const std::vector<uint32_t>& tokens) {
    ExpertJob job(layer.layers(), geometry_, lanes);
    write_request(tokens);
    EXPECT_TRUE(job.read(*board_).ok());
    EXPECT_EQ(job.units()[1] > 0, job.units()[2] > 0);
    EXPECT_EQ(job.units()[1] > 0, job.units()[0] < job.expert_count());
    return job.units()[0];
  };
  EXPECT_EQ(whole_of(1, {1, 1, 1}), 3U) << "one thread has nobody to share with";
  EXPECT_EQ(whole_of(4, {1}), 0U);
  EXPECT_EQ(whole_of(4, {1, 1, 1}), 0U);
  EXPECT_EQ(whole_of(4, {1, 1, 1, 1}), 4U);
  EXPECT_EQ(whole_of(4, {1, 1, 1, 1, 1, 1}), 4U);
  EXPECT_EQ(whole_of(2, {20, 1, 1, 1}), 2U)
      << "the large one is more than half of the work, and one is left over";
}

TEST_F(ExpertJobTest, LooksAheadAtTheRowsOfAShareAndNoOthers) {
  const TestLayer layer({TensorType::kQ2_K, TensorType::kQ2_K, TensorType::kQ4_0}, 256);
  ExpertJob job(layer.layers(), geometry_, 4, {.split = SplitRule::kAll, .unit_bytes = 1024});
  JobScratch scratch;
  job.prepare(scratch);
  write_request({1, 0, 2, 1});
  ASSERT_TRUE(job.read(*board_).ok());
  const auto units_of = [&](Stage stage) { return job.units()[static_cast<std::size_t>(stage)]; };
  // From the middle of one expert to the middle of the next but one.
  const uint32_t units = units_of(Stage::kOutput);
  ASSERT_GE(units, 6U);
  job.look_ahead({0, units_of(Stage::kIntermediate)}, {1, units - 1}, scratch);
  std::size_t bytes = 0;
  for (const auto rows : scratch.output_rows) {
    EXPECT_GE(rows.data(), layer.down.data());
    EXPECT_LE(rows.data() + rows.size(), layer.down.data() + layer.down.size());
    bytes += rows.size();
  }
  ASSERT_EQ(scratch.output_rows.size(), 3U);
  const auto all = 3 * layer.layer.down_expert_bytes;
  EXPECT_EQ(bytes, all - 2 * all / units);
  EXPECT_EQ(scratch.output_rows[1].data(), layer.down.data() + 2 * layer.layer.down_expert_bytes);

  job.look_ahead({0, 0}, {0, 0}, scratch);
  EXPECT_TRUE(scratch.output_rows.empty());
}

}  // namespace
}  // namespace strata::cpu_expert_worker
