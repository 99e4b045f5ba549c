#include "services/cli/top_view.h"

#include <gmock/gmock.h>

namespace strata::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

void add(v1::GetMetricsResponse& metrics, const std::string& name, double value,
         const std::string& label = {}, const std::string& label_value = {}) {
  v1::MetricFamily* family = nullptr;
  for (auto& known : *metrics.mutable_families()) {
    if (known.name() == name) family = &known;
  }
  if (family == nullptr) {
    family = metrics.add_families();
    family->set_name(name);
    family->set_type(v1::METRIC_TYPE_COUNTER);
  }
  v1::MetricSample& sample = *family->add_samples();
  sample.set_value(value);
  for (const auto& [key, text] : {std::pair<std::string, std::string>{"worker", "x"}, {label, label_value}}) {
    if (key.empty()) continue;
    v1::MetricLabel& added = *sample.add_labels();
    added.set_name(key);
    added.set_value(text);
  }
}

// A look at `seconds`, with counters that have grown since second 0.
TopSample look_at(double seconds, const std::vector<double>& thread_busy) {
  TopSample sample;
  sample.seconds = seconds;
  sample.cluster.set_ready(true);
  sample.cluster.set_address("http://127.0.0.1:8080");
  sample.cluster.set_uptime_seconds(seconds);
  for (const char* name : {"gpu-worker", "cpu-expert-worker-0", "gateway"})
    sample.cluster.add_processes()->set_name(name);
  v1::GetMetricsResponse& engine = sample.metrics["gpu-worker"];
  add(engine, "strata_decode_windows_total", 100 * seconds);
  add(engine, "strata_decode_seconds_total", 0.5 * seconds);
  add(engine, "strata_decode_stage_seconds_total", 0.1 * seconds, "stage", "route");
  add(engine, "strata_decode_stage_seconds_total", 0.3 * seconds, "stage", "cpu_wait");
  add(engine, "strata_decode_stage_seconds_total", 0, "stage", "draft");
  add(engine, "strata_expert_uses_total", 300 * seconds, "served_by", "vram");
  add(engine, "strata_expert_uses_total", 100 * seconds, "served_by", "cpu");
  v1::GetMetricsResponse& worker = sample.metrics["cpu-expert-worker-0"];
  add(worker, "strata_cpu_pool_busy_seconds_total", 0.4 * seconds);
  add(worker, "strata_cpu_pool_jobs_total", 50 * seconds);
  add(worker, "strata_cpu_pool_bytes_read_total", 2e9 * seconds);
  for (std::size_t i = 0; i < thread_busy.size(); ++i) {
    add(worker, "strata_cpu_pool_thread_busy_seconds_total", thread_busy[i] * seconds, "thread",
        std::to_string(i));
  }
  add(sample.metrics["gateway"], "strata_generated_tokens_total", 100 * seconds, "kind", "answer");
  add(sample.metrics["gateway"], "strata_prompt_tokens_total", 30 * seconds, "source", "computed");
  add(sample.metrics["gateway"], "strata_prompt_tokens_total", 900 * seconds, "source", "reused_live");
  return sample;
}

TEST(TopView, ShowsRatesBetweenTwoLooks) {
  const TopSample now = look_at(12, {0.4, 0.3});
  const TopView view = make_top_view(look_at(10, {0.4, 0.3}), now);
  EXPECT_DOUBLE_EQ(view.decode_windows_per_second, 100);
  EXPECT_DOUBLE_EQ(view.decode_window_ms, 5);
  EXPECT_DOUBLE_EQ(*view.hit_ratio, 0.75);
  EXPECT_DOUBLE_EQ(view.generated_tokens_per_second, 100);
  EXPECT_DOUBLE_EQ(view.prompt_tokens_per_second, 30) << "without those that were reused";
  ASSERT_EQ(view.workers.size(), 1U);
  EXPECT_NEAR(view.workers[0].busy, 0.4, 1e-9);
  EXPECT_NEAR(view.workers[0].threads[1].busy, 0.3, 1e-9);
  const std::string text = top_text(now, view, 80);
  EXPECT_THAT(text, HasSubstr("windows/s  100.0, 5.00 ms each: cpu_wait 60 %, route 20 %\n"));
  EXPECT_THAT(text, HasSubstr("cpu-expert-worker-0: busy 40.0 %, 50 experts/s, 2.00 GB/s of weights\n"));
  EXPECT_THAT(text, HasSubstr("    0 ########............  40.0 %      1 ######..............  30.0 %\n"));
  EXPECT_THAT(text, Not(HasSubstr("!")));
}

TEST(TopView, MarksAThreadThatIsFarFromTheOthers) {
  const std::vector<double> busy{0.3, 0.31, 0.05, 0.29, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.6};
  const TopSample now = look_at(2, busy);
  const TopView view = make_top_view(look_at(1, busy), now);
  const auto& threads = view.workers[0].threads;
  ASSERT_EQ(threads.size(), 12U);
  for (std::size_t i = 0; i < threads.size(); ++i) EXPECT_EQ(threads[i].differs, i == 2 || i == 11) << i;
  EXPECT_THAT(top_text(now, view, 80), HasSubstr("    2 #...................   5.0 % !"));
}

TEST(TopView, MarksNobodyInAnIdlePool) {
  const TopSample now = look_at(2, {0.001, 0.0});
  for (const ThreadRow& thread : make_top_view(look_at(1, {0.001, 0.0}), now).workers[0].threads)
    EXPECT_FALSE(thread.differs);
}

TEST(TopView, MarksNobodyForADifferenceThatIsNone) {
  const std::vector<double> busy{0.01, 0.02, 0.11};
  const auto threads = make_top_view(look_at(1, busy), look_at(2, busy)).workers[0].threads;
  EXPECT_FALSE(threads[0].differs);
  EXPECT_TRUE(threads[2].differs);
}

TEST(TopView, SaysNothingOfAProcessThatDidNotAnswerTheFirstTime) {
  TopSample before = look_at(100, {0.5}), now = look_at(102, {0.5});
  before.metrics.clear();
  const TopView view = make_top_view(before, now);
  EXPECT_EQ(view.generated_tokens_per_second, 0);
  EXPECT_EQ(view.decode_windows_per_second, 0);
  EXPECT_FALSE(view.hit_ratio);
  EXPECT_EQ(view.workers[0].busy, 0);
  EXPECT_TRUE(view.workers[0].threads.empty());
}

TEST(TopView, CountsARestartedProcessFromItsStart) {
  TopSample before = look_at(100, {0.5}), now = look_at(102, {0.5});
  before.metrics["cpu-expert-worker-0"].set_instance_id(1);
  now.metrics["cpu-expert-worker-0"] = look_at(1, {0.5}).metrics["cpu-expert-worker-0"];
  now.metrics["cpu-expert-worker-0"].set_instance_id(2);
  const TopView view = make_top_view(before, now);
  EXPECT_DOUBLE_EQ(view.workers[0].experts_per_second, 25);
}

TEST(TopView, ShowsAClusterThatHasDoneNothing) {
  TopSample nothing;
  nothing.cluster.add_processes()->set_name("cpu-expert-worker-0");
  const TopView view = make_top_view(nothing, nothing);
  EXPECT_FALSE(view.hit_ratio);
  EXPECT_THAT(top_text(nothing, view, 80), HasSubstr("experts    none used, 0.0 exchanges/s\n"));
}

}  // namespace
}  // namespace strata::cli
