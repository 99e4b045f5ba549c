#include "services/config/nearest.h"

#include <gtest/gtest.h>

namespace strata::config {
namespace {

const std::vector<std::string> kNames = {"experts.slots", "experts.policy", "gateway.listen", "model.path"};

TEST(NearestName, FindsATypingMistake) {
  EXPECT_EQ(nearest_name("experts.slot", kNames), "experts.slots");
  EXPECT_EQ(nearest_name("gateway.lisetn", kNames), "gateway.listen");
  EXPECT_EQ(nearest_name("modle.path", kNames), "model.path");
  EXPECT_EQ(did_you_mean("expert.policy", kNames), "; did you mean experts.policy?");
}

TEST(NearestName, SuggestsNothingForWordsThatAreFarFromAll) {
  EXPECT_EQ(nearest_name("entirely.different", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'x'), kNames), "");
  EXPECT_EQ(did_you_mean("xyz", {}), "");
}

}  // namespace
}  // namespace strata::config
