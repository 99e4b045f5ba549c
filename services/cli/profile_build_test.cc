#include "services/cli/profile_build.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "services/cli/static_placement.h"

namespace strata::cli {
namespace {

using residency::Profile;
using residency::RoutingTrace;
using residency::TokenRole;
using testing::ElementsAre;
using testing::HasSubstr;

// Two layers of four experts, one a token; the same expert in both layers, one further in the second.
RoutingTrace::Conversation conversation(const std::vector<std::pair<TokenRole, uint16_t>>& tokens) {
  RoutingTrace::Conversation made;
  for (const auto& [role, expert] : tokens) {
    made.tokens.push_back(1);
    made.roles.push_back(role);
    made.domains.push_back(0);
    made.picks.push_back(expert);
    made.picks.push_back(static_cast<uint16_t>((expert + 1) % 4));
  }
  return made;
}
constexpr auto kRead = TokenRole::kPrompt, kSaid = TokenRole::kGenerated;
RoutingTrace small_trace() {
  return {.layers = 2,
          .experts = 4,
          .used = 1,
          .conversations = {conversation({{kRead, 3}, {kSaid, 0}, {kSaid, 0}}), conversation({{kSaid, 2}})}};
}

Profile profile(std::vector<uint64_t> counts, uint64_t tokens = 10, std::string fingerprint = "m") {
  return {.model_fingerprint = std::move(fingerprint),
          .layers = 2,
          .experts = static_cast<uint32_t>(counts.size() / 2),
          .tokens = tokens,
          .counts = std::move(counts)};
}

TEST(ProfileBuild, CountsGeneratedTokensOnly) {
  const auto built = profile_of(small_trace());
  ASSERT_TRUE(built) << built.error().message();
  EXPECT_EQ(built->tokens, 3u);
  EXPECT_EQ(built->layers, 2u);
  EXPECT_THAT(built->counts, ElementsAre(2, 0, 1, 0, 0, 2, 0, 1));
  EXPECT_EQ(built->model_fingerprint, "");
}

TEST(ProfileBuild, LearnsTopicsFromPromptsToo) {
  RoutingTrace trace{.layers = 2, .experts = 4, .used = 1, .conversations = {}};
  const auto chunk = residency::TopicLearner::kChunkTokens;
  trace.conversations.push_back(
      conversation(std::vector<std::pair<TokenRole, uint16_t>>(chunk, {kRead, uint16_t{0}})));
  trace.conversations.push_back(
      conversation(std::vector<std::pair<TokenRole, uint16_t>>(chunk, {kSaid, uint16_t{2}})));
  const auto built = profile_of(trace);
  ASSERT_TRUE(built) << built.error().message();
  EXPECT_EQ(built->tokens, chunk) << "the prompt is in no count";
  ASSERT_EQ(built->topics.size(), 2u);
  EXPECT_EQ(built->topics[0].tokens, chunk);
  EXPECT_THAT(built->topics[0].counts, ElementsAre(chunk, 0, 0, 0, 0, chunk, 0, 0));
  EXPECT_THAT(built->topics[1].counts, ElementsAre(0, 0, chunk, 0, 0, 0, 0, chunk));

  const std::vector<NamedProfile> both = {{"a", *built}, {"b", *built}};
  const auto merged = merge_profiles(both, {});
  ASSERT_TRUE(merged) << merged.error().message();
  uint64_t tokens = 0;
  for (const residency::Topic& topic : merged->topics) tokens += topic.tokens;
  EXPECT_EQ(tokens, 4 * chunk) << "nothing is lost";
}

TEST(ProfileBuild, TakesTheFirstLayersOfATrace) {
  const auto built = profile_of(small_trace(), 1);
  ASSERT_TRUE(built);
  EXPECT_EQ(built->layers, 1u);
  EXPECT_THAT(built->counts, ElementsAre(2, 0, 1, 0));
  EXPECT_EQ(profile_of(small_trace(), 3).error().code(), Code::kInvalidArgument);
}

TEST(ProfileBuild, RefusesATraceOfPromptsOnly) {
  RoutingTrace trace = small_trace();
  trace.conversations = {conversation({{kRead, 1}, {kRead, 2}})};
  EXPECT_EQ(profile_of(trace).error().code(), Code::kFailedPrecondition);
}

TEST(ProfileMerge, AddsCountsByWeight) {
  const std::vector<NamedProfile> both = {{"a", profile({4, 0, 2, 2})}, {"b", profile({1, 3, 0, 5}, 20)}};
  const auto even = merge_profiles(both, {});
  ASSERT_TRUE(even) << even.error().message();
  EXPECT_THAT(even->counts, ElementsAre(5, 3, 2, 7));
  EXPECT_EQ(even->tokens, 30u);
  EXPECT_EQ(even->model_fingerprint, "m");
  const std::vector<double> weights = {0.5, 2};
  const auto weighted = merge_profiles(both, weights);
  ASSERT_TRUE(weighted);
  EXPECT_THAT(weighted->counts, ElementsAre(4, 6, 1, 11));
  EXPECT_EQ(weighted->tokens, 45u);
}

TEST(ProfileMerge, RefusesWhatDoesNotBelongTogether) {
  const auto merged = [](const Profile& other, const std::vector<double>& weights = {}) {
    const std::vector<NamedProfile> both = {{"a.profile", profile({1, 1, 1, 1})}, {"b.profile", other}};
    const auto result = merge_profiles(both, weights);
    return result ? Status() : result.error();
  };
  EXPECT_EQ(merged(profile({1, 1, 1, 1}, 1, "other")).code(), Code::kFailedPrecondition);
  EXPECT_THAT(merged(profile({1, 1, 1, 1}, 1, "other")).message(),
              testing::AllOf(HasSubstr("a.profile"), HasSubstr("b.profile"), HasSubstr("model other")));
  EXPECT_EQ(merged(profile({1, 1, 1, 1, 1, 1})).code(), Code::kFailedPrecondition) << "other shape";
  EXPECT_EQ(merged(profile({1, 1, 1, 1}), {1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(merged(profile({1, 1, 1, 1}), {1, 0}).code(), Code::kInvalidArgument);
  EXPECT_EQ(merged(profile({1, 1, 1, 1}), {1, -2}).code(), Code::kInvalidArgument);
  EXPECT_EQ(merged(profile({1, 1, 1, 1}), {1, std::nan("")}).code(), Code::kInvalidArgument);
  EXPECT_EQ(merge_profiles({}, {}).error().code(), Code::kInvalidArgument);
}

class TraceFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-traces-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_F(TraceFolder, IsReadAsOneTraceInTheOrderOfNames) {
  RoutingTrace first = small_trace(), second = small_trace();
  second.conversations.resize(1);
  second.conversations[0].tokens[0] = 77;
  ASSERT_TRUE(residency::write_routing_trace(first, path("b.bin")).ok());
  ASSERT_TRUE(residency::write_routing_trace(second, path("a.bin")).ok());
  std::ofstream(path("notes.txt")) << "not a trace";
  const auto all = read_traces(folder_.string());
  ASSERT_TRUE(all) << all.error().message();
  ASSERT_EQ(all->conversations.size(), 3u);
  EXPECT_EQ(all->conversations[0].tokens[0], 77);
  EXPECT_EQ(read_traces(path("b.bin"))->conversations.size(), 2u);
}

TEST_F(TraceFolder, SaysWhatIsWrongWithIt) {
  EXPECT_EQ(read_traces(folder_.string()).error().code(), Code::kNotFound) << "empty";
  EXPECT_EQ(read_traces(path("missing.bin")).error().code(), Code::kNotFound);
  ASSERT_TRUE(residency::write_routing_trace(small_trace(), path("a.bin")).ok());
  RoutingTrace other = small_trace();
  other.experts = 8;
  ASSERT_TRUE(residency::write_routing_trace(other, path("b.bin")).ok());
  const auto mixed = read_traces(folder_.string());
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(mixed.error().message(), HasSubstr("b.bin"));
  std::ofstream(path("b.bin"), std::ios::trunc) << "STRTRC01";
  EXPECT_EQ(read_traces(folder_.string()).error().code(), Code::kDataLoss);
}

TEST(StaticPlacement, HoldsTheMostUsedOfAllLayers) {
  const Profile counted = profile({1, 9, 5, 5, 0, 0, 2, 18});
  EXPECT_THAT(place_by_profile(counted, 3), ElementsAre(false, true, true, false, false, false, false, true));
  EXPECT_EQ(std::ranges::count(place_by_profile(counted, 100), true), 8) << "more slots than experts";
  EXPECT_DOUBLE_EQ(hit_rate(place_by_profile(counted, 8), counted.counts), 1.0);
  EXPECT_DOUBLE_EQ(hit_rate(place_by_profile(counted, 0), counted.counts), 0.0);
  EXPECT_DOUBLE_EQ(hit_rate(std::vector<bool>(8, true), std::vector<uint64_t>(8)), 0.0) << "nothing was used";
}

}  // namespace
}  // namespace strata::cli
