// Wherever the experts of a layer are computed, the parts have the bits that one thread gives which computes
// all of them.

#include "gpu-worker/expert_dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "tests/support/expert_board_support.h"
#include "tests/support/test_data.h"

namespace strata::gpu_worker {
namespace {

using quant::Numerics;

constexpr uint32_t kTokensMax = 64;

struct TestModel {
  const char* name;
  std::string (*path)();
};
const TestModel kModels[] = {
    {"Demo", [] { return tests::models_golden_model().string(); }},  // quantized
    {"Float", [] { return (tests::tiny_folder() / "trunk-f32.gguf").string(); }},
    {"Mixed",
     [] { return (tests::tiny_folder() / "mixed-00001-of-00002.gguf").string(); }},  // types differ per layer
};

class ExpertDispatchTest : public testing::TestWithParam<TestModel> {
 protected:
  ExpertDispatchTest() : weights_(open_model(GetParam().path())), layers_(experts_of(weights_)) {}
  void TearDown() override { shm::remove_stale_segments(run_); }

  ExpertWorkersOptions worker_options(uint32_t board_tokens = kTokensMax) const {
    return {.run_id = run_,
            .geometry = {.hidden = weights_.config.hidden,
                         .tokens_max = board_tokens,
                         .pairs_max = board_tokens * weights_.config.experts_used},
            .lost_after_ms = 60'000,
            .expected = 1};
  }
  ExpertDispatchOptions dispatch_options(ExpertWorkers& workers, const ResidentExperts& residents,
                                         model::Parallel& parallel,
                                         Numerics numerics = Numerics::kReproducible) const {
    return {.weights = &weights_,
            .numerics = numerics,
            .residents = &residents,
            .workers = &workers,
            .usage = nullptr,
            .parallel = &parallel,
            .tokens_max = kTokensMax};
  }
  // Every layer for several numbers of tokens.
  void expect_reference_bits(ExpertDispatch& dispatch, Numerics numerics = Numerics::kReproducible) {
    for (uint32_t tokens : {1U, 2U, 5U, 17U, kTokensMax}) {
      dispatch.begin_window(std::vector<uint8_t>(tokens, 0));
      for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
        const MadeUpLayer made_up(weights_, layer, tokens, numerics, tokens * 1000 + layer);
        std::vector<float>& reference = references_[{numerics, tokens, layer}];
        if (reference.empty()) reference = reference_parts(weights_, made_up, numerics);
        ASSERT_TRUE(same_bits(dispatched_parts(dispatch, weights_, made_up), reference))
            << tokens << " tokens, layer " << layer;
      }
    }
  }
  uint64_t pairs_of_one_pass() const {
    return uint64_t{1 + 2 + 5 + 17 + kTokensMax} * weights_.config.experts_used * layers_.size();
  }

  std::string run_ = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
  model::ModelWeights weights_;
  std::vector<model::LayerExperts> layers_;
  std::map<std::tuple<Numerics, uint32_t, uint32_t>, std::vector<float>>
      references_;  // by numerics, tokens, layer
};

TEST_P(ExpertDispatchTest, GivesTheSameBitsForEveryResidencyAndNumberOfWorkers) {
  const std::pair<const char*, std::function<bool(uint32_t, uint32_t)>> residencies[] = {
      {"none", [](uint32_t, uint32_t) { return false; }},
      {"half", [](uint32_t layer, uint32_t e) { return (layer + e) % 2 == 0; }},
      {"all", [](uint32_t, uint32_t) { return true; }}};
  model::Parallel parallel(2);
  for (const auto& [residency, is_resident] : residencies) {
    const ChosenResidents residents(weights_, is_resident);
    for (uint32_t count : {0U, 1U, 2U}) {
      SCOPED_TRACE(fmt::format("residency {}, {} workers", residency, count));
      ExpertWorkers workers(worker_options());
      std::vector<std::unique_ptr<ThreadWorker>> threads;
      for (uint32_t i = 0; i < count; ++i) {
        // The second one has helpers of its own.
        threads.push_back(std::make_unique<ThreadWorker>(workers, fmt::format("cpu-expert-worker-{}", i),
                                                         layers_, 1 + 2 * i));
      }
      ExpertDispatch dispatch(dispatch_options(workers, residents, parallel));
      expect_reference_bits(dispatch);
      const DispatchCounters& counters = dispatch.counters();
      EXPECT_EQ(counters.hits + counters.misses, pairs_of_one_pass());
      EXPECT_EQ(counters.fallbacks, count == 0 ? counters.misses.load() : 0U);
      EXPECT_EQ(counters.misses == 0, residents.record(0, 0) != nullptr && residents.record(0, 1) != nullptr);
      for (const auto& thread : threads) {
        EXPECT_EQ(thread->attached().board.header().all_progress() > 0, counters.misses > 0)
            << "both sides of the claim";
      }
    }
  }
}

// Its weights lie in the memory of an expert's home; but a fair number for everybody comes first.
TEST_P(ExpertDispatchTest, SendsExpertsHomeAndTheSurplusToWhoeverHasFewest) {
  const ChosenResidents residents(weights_, [](uint32_t, uint32_t) { return false; });
  model::Parallel parallel(1);
  ExpertWorkers workers(worker_options());
  const ThreadWorker first(workers, "cpu-expert-worker-0", layers_, 2);
  const ThreadWorker second(workers, "cpu-expert-worker-1", layers_, 3);
  ExpertDispatch dispatch(dispatch_options(workers, residents, parallel));
  const uint32_t top_k = weights_.config.experts_used;
  const auto experts_on = [&](const ThreadWorker& worker) {
    const shm::Board& board = worker.attached().board;
    std::vector<uint32_t> experts;
    for (uint32_t i = 0; i < board.header().request.pair_count; ++i)
      experts.push_back(board.pairs()[i].expert);
    EXPECT_TRUE(std::ranges::is_sorted(experts));
    return experts;
  };
  for (const uint32_t step : {1U, 2U}) {
    MadeUpLayer layer(weights_, 0, 1, Numerics::kReproducible, step);
    for (uint32_t k = 0; k < top_k; ++k) layer.chosen[k] = static_cast<uint16_t>(k * step);
    dispatch.begin_window(std::vector<uint8_t>(1, 0));
    ASSERT_TRUE(same_bits(dispatched_parts(dispatch, weights_, layer),
                          reference_parts(weights_, layer, Numerics::kReproducible)));
    EXPECT_EQ(experts_on(first).size(), (top_k + 1) / 2);
    EXPECT_EQ(experts_on(second).size(), top_k / 2);
    if (step > 1) continue;  // all of them had the same home
    for (const uint32_t expert : experts_on(second)) EXPECT_EQ(expert % 2, 1U);
  }
}

TEST_P(ExpertDispatchTest, GivesTheBitsOfExactNumericsToo) {
  const ChosenResidents residents(weights_, [](uint32_t layer, uint32_t e) { return (layer + e) % 2 == 0; });
  model::Parallel parallel(1);
  ExpertWorkers workers(worker_options());
  const ThreadWorker worker(workers, "cpu-expert-worker-0", layers_);
  ExpertDispatch dispatch(dispatch_options(workers, residents, parallel, Numerics::kExact));
  expect_reference_bits(dispatch, Numerics::kExact);
}

// A board for 4 tokens takes a window of 64 in up to 16 requests.
TEST_P(ExpertDispatchTest, DispatchesAWindowThatIsLongerThanTheBoardInPieces) {
  const ChosenResidents residents(weights_, [](uint32_t layer, uint32_t e) { return (layer + e) % 3 == 0; });
  model::Parallel parallel(1);
  ExpertWorkers workers(worker_options(4));
  const ThreadWorker first(workers, "cpu-expert-worker-0", layers_);
  const ThreadWorker second(workers, "cpu-expert-worker-1", layers_);
  ExpertDispatch dispatch(dispatch_options(workers, residents, parallel));
  expect_reference_bits(dispatch);
  EXPECT_EQ(dispatch.counters().fallbacks, 0U);
  EXPECT_GT(first.attached().next_ticket, 5 * layers_.size())
      << "more requests than windows: there were pieces";
}

TEST_P(ExpertDispatchTest, CountsEveryUseForPromptAndDecodeApart) {
  constexpr uint32_t kTokens = 7;
  const ChosenResidents residents(weights_, [](uint32_t, uint32_t e) { return e % 2 == 0; });
  model::Parallel parallel(1);
  ExpertWorkers workers(worker_options());
  uint32_t experts_max = 0;
  for (const auto& layer : layers_) experts_max = std::max(experts_max, layer.count);
  auto usage = shm::UsageBoard::create(shm::segment_name(run_, "usage", 1),
                                       static_cast<uint32_t>(layers_.size()), experts_max);
  ASSERT_TRUE(usage);
  ExpertDispatchOptions options = dispatch_options(workers, residents, parallel);
  options.usage = &*usage;
  ExpertDispatch dispatch(options);

  const std::vector<uint8_t> is_prompt = {0, 1, 1, 0, 1, 0, 0};
  dispatch.begin_window(is_prompt);
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> decode, prefill;
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    EXPECT_EQ(usage->header().windows, 0U) << "not before the last layer";
    const MadeUpLayer made_up(weights_, layer, kTokens, Numerics::kReproducible, layer);
    dispatched_parts(dispatch, weights_, made_up);
    for (uint32_t pair = 0; pair < made_up.chosen.size(); ++pair) {
      ++(is_prompt[pair / weights_.config.experts_used] != 0 ? prefill
                                                             : decode)[{layer, made_up.chosen[pair]}];
    }
  }
  EXPECT_EQ(usage->header().windows, 1U);
  EXPECT_EQ(usage->header().decode_tokens, 4U);
  EXPECT_EQ(usage->header().prefill_tokens, 3U);
  EXPECT_EQ(usage->header().window_counted.seq, 1U) << "rung once";
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    std::array<uint64_t, 2> decode_uses{}, prefill_uses{};  // misses, hits
    for (uint32_t e = 0; e < layers_[layer].count; ++e) {
      decode_uses[e % 2 == 0 ? 1 : 0] += decode[{layer, e}];
      prefill_uses[e % 2 == 0 ? 1 : 0] += prefill[{layer, e}];
    }
    const shm::LayerUses& uses = usage->layer(layer);
    EXPECT_EQ((std::array{uses.decode_misses.load(), uses.decode_hits.load()}), decode_uses);
    EXPECT_EQ((std::array{uses.prefill_misses.load(), uses.prefill_hits.load()}), prefill_uses);
    for (uint32_t e = 0; e < layers_[layer].count; ++e) {
      ASSERT_EQ(usage->decode(layer, e).load(), (decode[{layer, e}])) << layer << " " << e;
      ASSERT_EQ(usage->prefill(layer, e).load(), (prefill[{layer, e}])) << layer << " " << e;
    }
  }
}

// A window can break off between begin() and finish(); the next one finds quiet boards.
TEST_P(ExpertDispatchTest, GoesOnAfterAWindowThatBrokeOff) {
  const ChosenResidents residents(weights_, [](uint32_t, uint32_t) { return false; });
  model::Parallel parallel(1);
  ExpertWorkers workers(worker_options());
  const ThreadWorker worker(workers, "cpu-expert-worker-0", layers_);
  ExpertDispatch dispatch(dispatch_options(workers, residents, parallel));
  {
    const MadeUpLayer broken(weights_, 0, 8, Numerics::kReproducible, 1);
    dispatch.begin_window(std::vector<uint8_t>(8, 0));
    dispatch.begin(broken.routed);
  }
  expect_reference_bits(dispatch);
}

// Workers come and go at window boundaries, while the answers stay the same.
TEST_P(ExpertDispatchTest, UsesWorkersFromTheNextWindowOn) {
  const ChosenResidents residents(weights_, [](uint32_t, uint32_t) { return false; });
  model::Parallel parallel(1);
  ExpertWorkers workers(worker_options());
  ExpertDispatch dispatch(dispatch_options(workers, residents, parallel));
  expect_reference_bits(dispatch);
  const uint64_t alone = dispatch.counters().fallbacks;
  EXPECT_EQ(alone, pairs_of_one_pass());
  {
    const ThreadWorker worker(workers, "cpu-expert-worker-0", layers_);
    expect_reference_bits(dispatch);
    EXPECT_EQ(dispatch.counters().fallbacks, alone) << "the worker computed everything";
    workers.detach(workers.in_window().front());
  }
  expect_reference_bits(dispatch);
  EXPECT_EQ(dispatch.counters().fallbacks, 2 * alone);
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertDispatchTest, testing::ValuesIn(kModels),
                         [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace strata::gpu_worker
