#include <gtest/gtest.h>

#include "services/rpc/server.h"

namespace strata::rpc {
namespace {

TEST(MetricsProto, BringsCountersGaugesAndHistogramsBackAsTheyWere) {
  obs::Metrics metrics(obs::Labels{{"worker", "gpu0"}});
  metrics.counter("uses_total", "Uses.", {{"served_by", "cpu"}}).Increment(7);
  metrics.counter("uses_total", "Uses.", {{"served_by", "vram"}});
  metrics.gauge("slots", "Slots.").Set(-2.5);
  auto& latency = metrics.latency("window_seconds", "Windows.");
  latency.Observe(0.003);
  latency.Observe(100000);

  v1::GetMetricsResponse wire;
  to_proto(metrics.collect(), wire);
  EXPECT_EQ(obs::Metrics::to_text(from_proto(wire)), obs::Metrics::to_text(metrics.collect()));
}

TEST(MetricsProto, SurvivesAHistogramWhoseListsDoNotMatch) {
  v1::GetMetricsResponse wire;
  auto* family = wire.add_families();
  family->set_name("h");
  family->set_type(v1::METRIC_TYPE_HISTOGRAM);
  auto* sample = family->add_samples();
  sample->add_bounds(1.0);
  sample->add_bounds(2.0);
  sample->add_bucket_counts(3);
  sample->set_count(4);
  auto families = from_proto(wire);
  EXPECT_EQ(families.at(0).metric.at(0).histogram.bucket.size(), 2u) << "one pair, and +Inf";
}

}  // namespace
}  // namespace strata::rpc
