#include "cache-manager/change_request.h"

#include <gtest/gtest.h>

namespace strata::cache_manager {
namespace {

v1::ChangeResidencyRequest setting(const std::string& name, const std::string& value) {
  v1::ChangeResidencyRequest request;
  v1::LiveSetting& added = *request.add_settings();
  added.set_name(name);
  added.set_value(value);
  return request;
}

TEST(ChangeRequest, ReadsLiveSettingsAsAConfigurationWould) {
  EXPECT_EQ(read_change(setting("experts.policy", "lru"))->policy, "lru");
  EXPECT_EQ(read_change(setting("experts.exchanges_per_window", "25%"))->exchanges_per_window->value, 25);
  EXPECT_EQ(read_change(setting("experts.copy_budget", "2KiB"))->copy_budget->bytes, 2048u);
  EXPECT_EQ(read_change(setting("experts.exchanges_in_flight", "7"))->exchanges_in_flight->number, 7u);
  EXPECT_FALSE(read_change(setting("experts.exchanges_in_flight", "auto"))->exchanges_in_flight->number);
}

TEST(ChangeRequest, RefusesWhatCannotBeChangedLiveAndSaysWhy) {
  const auto fault = [](const std::string& name, const std::string& value) {
    const auto change = read_change(setting(name, value));
    EXPECT_FALSE(change);
    return change ? "" : change.error().message();
  };
  EXPECT_NE(fault("experts.slots", "5").find("restart of the gpu-worker"), std::string::npos);
  EXPECT_EQ(fault("experts.nothing", "5"), "there is no setting experts.nothing");
  EXPECT_NE(fault("experts.policy", "lru-decay").find("experts.policy: expected"), std::string::npos);
  EXPECT_NE(fault("experts.exchanges_in_flight", "100000").find("expected auto or"), std::string::npos);
  EXPECT_NE(fault("experts.copy_budget", "-1").find("experts.copy_budget"), std::string::npos);
}

TEST(ChangeRequest, ReadsQuotasAndPins) {
  v1::ChangeResidencyRequest request;
  EXPECT_FALSE(read_change(request)->quotas) << "not asked for";
  request.mutable_quotas();
  EXPECT_EQ(read_change(request)->quotas, std::vector<uint32_t>()) << "the policy's own";
  request.mutable_quotas()->add_slots(3);
  request.set_unpin_all(true);
  request.add_pin()->set_expert(4);
  request.add_unpin()->set_layer(5);
  const auto change = read_change(request);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->quotas, (std::vector<uint32_t>{3}));
  EXPECT_EQ(change->pin, (std::vector<residency::ExpertKey>{{0, 4}}));
  EXPECT_EQ(change->unpin, (std::vector<residency::ExpertKey>{{5, 0}}));
  EXPECT_TRUE(change->unpin_all);
}

TEST(ChangeRequest, WritesTheLiveSettingsSoThatTheyCanBeReadAgain) {
  v1::GetResidencyResponse response;
  write_live_settings("lru",
                      {.exchanges_per_window = {config::Amount::Kind::kPercent, 25},
                       .copy_budget = config::Size::of(2048),
                       .exchanges_in_flight = 7},
                      response);
  std::map<std::string, std::string> written;
  for (const v1::LiveSetting& each : response.settings()) {
    written[each.name()] = each.value();
    EXPECT_TRUE(read_change(setting(each.name(), each.value()))) << each.name();
  }
  EXPECT_EQ(written, (std::map<std::string, std::string>{{"experts.policy", "lru"},
                                                         {"experts.exchanges_per_window", "25%"},
                                                         {"experts.copy_budget", "2KiB"},
                                                         {"experts.exchanges_in_flight", "7"}}));
}

}  // namespace
}  // namespace strata::cache_manager
