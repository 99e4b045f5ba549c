#include "cache-manager/learned_profile.h"

#include <gtest/gtest.h>

namespace strata::cache_manager {
namespace {

residency::Profile recorded(uint64_t tokens, std::vector<uint64_t> counts) {
  return {.model_fingerprint = "f",
          .layers = 1,
          .experts = static_cast<uint32_t>(counts.size()),
          .tokens = tokens,
          .counts = counts};
}

TEST(LearnedProfile, KnowsNothingAtFirst) { EXPECT_TRUE(LearnedProfile("f", 1, 4).shares().empty()); }

TEST(LearnedProfile, ARecordedProfileIsABeginningThatUseOutweighs) {
  LearnedProfile profile("f", 1, 2);
  ASSERT_TRUE(profile.begin_with(recorded(1'000'000, {1'000'000, 0})).ok());
  EXPECT_EQ(profile.profile().tokens, LearnedProfile::kPriorTokensMax);
  EXPECT_FLOAT_EQ(profile.shares()[0], 1.0f);
  std::vector<uint32_t> uses = {0, 3 * LearnedProfile::kPriorTokensMax};
  profile.add(uses, 3 * LearnedProfile::kPriorTokensMax);
  EXPECT_NEAR(profile.shares()[1], 0.75f, 1e-3f);
}

TEST(LearnedProfile, GoesOnWithWhatAnEarlierRunLearned) {
  LearnedProfile profile("f", 1, 2);
  ASSERT_TRUE(profile.resume(recorded(500'000, {3, 4})).ok());
  EXPECT_EQ(profile.profile().tokens, 500'000u);
  EXPECT_FALSE(profile.changed());
}

TEST(LearnedProfile, ForgetsSlowly) {
  LearnedProfile profile("f", 1, 2);
  std::vector<uint32_t> uses = {1000, 0};
  profile.add(uses, LearnedProfile::kTokensMax);
  EXPECT_EQ(profile.profile().counts[0], 1000u);
  profile.add(uses, 1);
  EXPECT_EQ(profile.profile().counts[0], 1000u) << "2000 halved";
  EXPECT_LE(profile.profile().tokens, LearnedProfile::kTokensMax);
}

TEST(LearnedProfile, RefusesAProfileOfAnotherShape) {
  LearnedProfile profile("f", 1, 3);
  EXPECT_EQ(profile.resume(recorded(1, {1, 2})).code(), Code::kFailedPrecondition);
  EXPECT_EQ(profile.begin_with(recorded(1, {1, 2})).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(profile.shares().empty());
}

TEST(LearnedProfile, NoTokensAreNoChange) {
  LearnedProfile profile("f", 1, 2);
  std::vector<uint32_t> uses = {0, 0};
  profile.add(uses, 0);
  EXPECT_FALSE(profile.changed());
}

}  // namespace
}  // namespace strata::cache_manager
