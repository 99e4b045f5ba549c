#include "gpu-worker/engine_probe.h"

#include <gtest/gtest.h>

#include "gpu-worker/fake_device.h"
#include "services/actor/actor_system.h"

namespace strata::gpu_worker {
namespace {

class EngineProbeTest : public testing::Test {
 protected:
  EngineProbeTest() {
    plan_.slots = 4;
    plan_.items = {{"kv", 100, "", ""}, {"arena", 256, "", ""}};
    probe_ = std::make_shared<EngineProbe>(world_.make_executor(), metrics_, plan_, 1.5,
                                           EngineProbeSources{.loop = &loop_,
                                                              .dispatch = &dispatch_,
                                                              .residents = &device_.residents(),
                                                              .usage = &device_.usage(),
                                                              .states = &states_,
                                                              .state_layout = &device_.state_layout()});
    actor::tell(probe_, EngineProbe::Update{});
    world_.deliver_all();
  }
  std::string text() { return obs::Metrics::to_text(metrics_.collect()); }
  void expect_line(const std::string& line) {
    EXPECT_NE(text().find(line + "\n"), std::string::npos) << line << "\n" << text();
  }

  actor::VirtualWorld world_;
  obs::Metrics metrics_{{}};
  MemoryPlan plan_;
  LoopCounters loop_;
  DispatchCounters dispatch_;
  FakeDevice device_{1};
  StateFeed states_;
  std::shared_ptr<EngineProbe> probe_;
};

TEST_F(EngineProbeTest, EveryLabelValueIsThereBeforeAnythingHappens) {
  for (std::string_view stage : kStageNames)
    expect_line(fmt::format("strata_decode_stage_seconds_total{{stage=\"{}\"}} 0", stage));
  for (const char* by : {"vram", "pcie_copy", "cpu", "disk"}) {
    expect_line(fmt::format("strata_expert_uses_total{{served_by=\"{}\"}} 0", by));
  }
  expect_line("strata_expert_slots 4");
  expect_line("strata_expert_slots_used 0");
  expect_line("strata_expert_cache_bytes 256");
  expect_line("strata_host_bytes{use=\"arena\"} 256");
  expect_line("strata_host_bytes{use=\"conv\"} 0");
  expect_line("strata_model_load_seconds 1.5");
  expect_line("strata_prefill_chunk_tokens_count 0");
}

TEST_F(EngineProbeTest, CountsHitsAndMissesOfEachLayer) {
  const std::string name = "strata_expert_layer_uses_total";
  expect_line(name + "{layer=\"0\",phase=\"prefill\",result=\"hit\"} 0");
  device_.usage().layer(0).decode_hits = 7;
  device_.usage().layer(0).prefill_misses = 5;
  actor::tell(probe_, EngineProbe::Update{});
  world_.deliver_all();
  expect_line(name + "{layer=\"0\",phase=\"decode\",result=\"hit\"} 7");
  expect_line(name + "{layer=\"0\",phase=\"decode\",result=\"miss\"} 0");
  expect_line(name + "{layer=\"0\",phase=\"prefill\",result=\"miss\"} 5");
}

TEST_F(EngineProbeTest, FollowsTheCountersOfTheLoop) {
  loop_.decode_windows = 3;
  loop_.late_masks = 2;
  loop_.decode_ns = 2'000'000'000;
  loop_.stage_ns[static_cast<std::size_t>(Stage::kCpuWait)] = 500'000'000;
  loop_.chunk_buckets[3] = 2;
  loop_.chunk_tokens = 15;
  dispatch_.hits = 7;
  dispatch_.misses = 5;
  uint64_t epoch = device_.residents().begin_attachment();
  ExpertExchange exchange{0, 0, 1};
  ASSERT_TRUE(device_.residents().retire(epoch, {&exchange, 1}));
  ASSERT_TRUE(device_.residents().land(epoch, {&exchange.slot, 1}));
  for (int i = 0; i < 3; ++i)
    world_.advance(std::chrono::milliseconds(100));  // more than once: nothing is counted twice
  expect_line("strata_decode_windows_total 3");
  expect_line("strata_constraint_late_total 2");
  expect_line("strata_decode_seconds_total 2");
  expect_line("strata_decode_stage_seconds_total{stage=\"cpu_wait\"} 0.5");
  expect_line("strata_expert_uses_total{served_by=\"vram\"} 7");
  expect_line("strata_expert_uses_total{served_by=\"cpu\"} 5");
  expect_line("strata_prefill_chunk_tokens_bucket{le=\"4\"} 0");
  expect_line("strata_prefill_chunk_tokens_bucket{le=\"8\"} 2");
  expect_line("strata_prefill_chunk_tokens_sum 15");
  expect_line("strata_expert_slots_used 1");
  expect_line("strata_residency_epoch 2");
}

}  // namespace
}  // namespace strata::gpu_worker
