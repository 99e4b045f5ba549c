#include "services/cli/residency_view.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <limits>

namespace strata::cli {
namespace {

v1::GetResidencyResponse sample() {
  v1::GetResidencyResponse residency;
  residency.set_attached(true);
  residency.set_policy("lru");
  residency.set_slots(4);
  residency.set_slots_used(3);
  residency.set_exchanges_total(10);
  residency.set_exchanges_per_window_max(1.5);
  residency.set_exchanges_in_flight_max(5);
  residency.set_copy_bytes_per_second_max(std::numeric_limits<double>::infinity());
  for (uint32_t index = 0; index < 2; ++index) {
    v1::LayerResidency& layer = *residency.add_layers();
    layer.set_layer(index);
    layer.set_quota(2);
    layer.set_expert_count(index == 0 ? 4 : 256);
    layer.set_exchanges(index + 3);
  }
  v1::LayerResidency& first = *residency.mutable_layers(0);
  first.add_experts(1);
  first.add_experts(3);
  first.add_pinned(3);
  first.set_decode_hits(30);
  first.set_decode_misses(10);
  v1::LayerResidency& second = *residency.mutable_layers(1);
  second.add_experts(255);
  second.set_decode_hits(10);
  second.set_decode_misses(30);
  second.set_prefill_misses(7);
  v1::LiveSetting& setting = *residency.add_settings();
  setting.set_name("experts.policy");
  setting.set_value("lru");
  return residency;
}

TEST(ResidencyView, ReadsExpertsAndQuotas) {
  const auto expert = parse_expert("3:17");
  ASSERT_TRUE(expert);
  EXPECT_EQ(expert->layer(), 3u);
  EXPECT_EQ(expert->expert(), 17u);
  for (const char* wrong : {"", "3", "3:", ":17", "3:17:1", "3:-1", "a:b", "3:17 ", "3:99999999999"}) {
    const auto fault = parse_expert(wrong);
    ASSERT_FALSE(fault) << wrong;
    EXPECT_NE(fault.error().message().find("expected LAYER:EXPERT"), std::string::npos);
  }
  const auto quotas = parse_quotas("12,0,7");
  ASSERT_TRUE(quotas);
  EXPECT_EQ(std::vector<uint32_t>(quotas->slots().begin(), quotas->slots().end()),
            (std::vector<uint32_t>{12, 0, 7}));
  EXPECT_EQ(parse_quotas("auto")->slots_size(), 0);
  for (const char* wrong : {"", "1,", ",1", "1,,2", "one", "1 2"}) EXPECT_FALSE(parse_quotas(wrong)) << wrong;
}

TEST(ResidencyView, ShowsLayersHitsAndAMapOfTheExperts) {
  const std::string text = residency_text(sample());
  EXPECT_NE(text.find("3 of 4 slots, policy lru\n"), std::string::npos) << text;
  EXPECT_NE(text.find("at most 1.5 exchanges per window, 5 in flight, no bound of bytes"), std::string::npos)
      << text;
  EXPECT_NE(text.find("hits       50.0% of generated, 0.0% of prompt"), std::string::npos) << text;
  EXPECT_NE(text.find("    0      2        2      1         3   75.0%       -  \u00b7\u2588\u00b7P\n"),
            std::string::npos)
      << text;
  // Four experts in a cell: one of them resident is the lightest shade.
  EXPECT_NE(text.find("\u00b7\u2591\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("changed"), std::string::npos);
}

TEST(ResidencyView, SaysWhatIsNotAsConfiguredAndForHowLong) {
  v1::GetResidencyResponse residency = sample();
  residency.set_attached(false);
  residency.add_changed("policy");
  residency.add_changed("pins");
  residency.set_copy_bytes_per_second_max(3 << 20);
  const std::string text = residency_text(residency);
  EXPECT_NE(text.find("changed    policy, pins: until the cache manager restarts"), std::string::npos)
      << text;
  EXPECT_NE(text.find("no gpu-worker is attached"), std::string::npos);
  EXPECT_NE(text.find("3 MiB a second"), std::string::npos);
}

TEST(ResidencyView, WritesTheSameForPrograms) {
  const boost::json::value parsed = boost::json::parse(residency_json(sample()));
  EXPECT_EQ(parsed.at("policy").as_string(), "lru");
  EXPECT_EQ(parsed.at_pointer("/settings/experts.policy").as_string(), "lru");
  EXPECT_TRUE(parsed.at_pointer("/limits/copy_bytes_per_second").is_null());
  EXPECT_EQ(parsed.at_pointer("/decode/hit_rate").as_double(), 0.5);
  EXPECT_EQ(parsed.at_pointer("/layers/0/experts/1").to_number<int>(), 3);
  EXPECT_EQ(parsed.at_pointer("/layers/0/pinned/0").to_number<int>(), 3);
  EXPECT_TRUE(parsed.at_pointer("/layers/0/prefill/hit_rate").is_null()) << "nothing was used";
  EXPECT_EQ(parsed.at_pointer("/layers/1/decode/hit_rate").as_double(), 0.25);
}

TEST(ResidencyView, ShowsWhatHappenedBetweenTwoLooks) {
  const v1::GetResidencyResponse before = sample();
  v1::GetResidencyResponse now = sample();
  now.set_exchanges_total(14);
  now.mutable_layers(0)->set_decode_hits(35);
  now.mutable_layers(1)->set_decode_hits(2);  // of a gpu-worker that was restarted
  const v1::GetResidencyResponse grown = since(before, now);
  EXPECT_EQ(grown.exchanges_total(), 4u);
  EXPECT_EQ(grown.layers(0).decode_hits(), 5u);
  EXPECT_EQ(grown.layers(0).decode_misses(), 0u);
  EXPECT_EQ(grown.layers(1).decode_hits(), 2u);
  EXPECT_EQ(grown.layers(0).quota(), 2u) << "states are not counters";
}

}  // namespace
}  // namespace strata::cli
