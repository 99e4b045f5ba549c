#include "services/obs/metrics.h"

#include <gmock/gmock.h>

namespace strata::obs {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, ShowsACounterWithCommonAndOwnLabels) {
  Metrics metrics(Labels{{"worker", "gpu0"}});
  metrics.counter("strata_expert_uses_total", "Uses.", {{"served_by", "cpu"}}).Increment(3);
  std::string text = Metrics::to_text(metrics.collect());
  EXPECT_THAT(text, HasSubstr("# TYPE strata_expert_uses_total counter"));
  EXPECT_THAT(text, HasSubstr("strata_expert_uses_total{worker=\"gpu0\",served_by=\"cpu\"} 3"));
}

TEST(Metrics, GivesTheSameObjectForTheSameNameAndLabels) {
  Metrics metrics(Labels{});
  auto& first = metrics.counter("a_total", "A.", {{"x", "1"}});
  EXPECT_EQ(&first, &metrics.counter("a_total", "A.", {{"x", "1"}}));
  EXPECT_NE(&first, &metrics.counter("a_total", "A.", {{"x", "2"}}));
}

TEST(Metrics, ShowsUntouchedMetricsAsZero) {
  Metrics metrics(Labels{});
  metrics.counter("a_total", "A.");
  metrics.gauge("b", "B.");
  metrics.latency("c_seconds", "C.");
  std::string text = Metrics::to_text(metrics.collect());
  EXPECT_THAT(text, HasSubstr("a_total 0"));
  EXPECT_THAT(text, HasSubstr("b 0"));
  EXPECT_THAT(text, HasSubstr("c_seconds_count 0"));
}

TEST(Metrics, PutsLatenciesIntoTheSpecifiedBuckets) {
  Metrics metrics(Labels{});
  auto& latency = metrics.latency("c_seconds", "C.");
  latency.Observe(0.07);
  latency.Observe(3000);
  std::string text = Metrics::to_text(metrics.collect());
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"0.06\"} 0"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"0.08\"} 1"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"2560\"} 1"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"+Inf\"} 2"));
}

TEST(MetricsDeathTest, RefusesACounterWithoutTotal) {
  Metrics metrics(Labels{});
  EXPECT_DEATH(metrics.counter("uses", "Uses."), "must end in _total");
}

}  // namespace
}  // namespace strata::obs
