#include "services/cli/metric_totals.h"

#include <gmock/gmock.h>

namespace strata::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

void add(v1::GetMetricsResponse& metrics, const std::string& name, double value,
         const std::string& use = "") {
  v1::MetricFamily& family = *metrics.add_families();
  family.set_name(name);
  v1::MetricSample& sample = *family.add_samples();
  sample.set_value(value);
  if (use.empty()) return;
  v1::MetricLabel& label = *sample.add_labels();
  label.set_name("use");
  label.set_value(use);
}

TEST(MetricTotals, SumsByLabelAndSaysWhatGrew) {
  v1::GetMetricsResponse before, after;
  add(before, "bytes", 1, "kv");
  add(before, "windows", 10);
  add(after, "bytes", 4, "kv");
  add(after, "bytes", 5, "arena");
  add(after, "windows", 12);
  const MetricTotals now(after), grown = now.since(MetricTotals(before));
  EXPECT_EQ(now.sum("bytes"), 9);
  EXPECT_THAT(now.by("bytes", "use"), ElementsAre(Pair("arena", 5), Pair("kv", 4)));
  EXPECT_THAT(grown.by("bytes", "use"), ElementsAre(Pair("arena", 5), Pair("kv", 3)));
  EXPECT_EQ(grown.sum("windows"), 2);
  EXPECT_EQ(now.sum("missing"), 0);
  EXPECT_TRUE(now.by("windows", "use").empty());
}

}  // namespace
}  // namespace strata::cli
