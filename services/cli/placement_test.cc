#include "services/cli/placement.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <boost/json.hpp>

#include "services/cli/profile_prompts.h"
#include "tests/support/test_data.h"

namespace strata::cli {
namespace {

TEST(Placement, AccountsForEveryByteOfTheModel) {
  auto file = gguf::GgufFile::open(tests::models_golden_model().string());
  ASSERT_TRUE(file.has_value()) << file.error().message();
  auto weights = model::load_model(*file);
  ASSERT_TRUE(weights.has_value()) << weights.error().message();
  Placement placement = place(*weights);
  EXPECT_EQ(placement.experts, uint64_t{weights->config.layers} * weights->config.experts);
  EXPECT_GE(placement.expert_bytes_max * placement.experts, placement.experts_bytes);
  uint64_t all = 0, routed = 0;
  for (const auto& tensor : file->tensors()) {
    all += tensor.bytes;
    bool trunk_expert =
        tensor.name.find("_exps.weight") != std::string_view::npos &&
        std::atoi(std::string(tensor.name.substr(4)).c_str()) < static_cast<int>(weights->config.layers);
    if (trunk_expert) routed += tensor.bytes;
  }
  EXPECT_EQ(placement.dense_bytes + placement.ngram_bytes + routed, all);
  ASSERT_EQ(placement.arenas.size(), 4u);
  EXPECT_EQ(placement.arenas[3].slots, placement.experts);
  EXPECT_EQ(placement.arenas[1].slots, (placement.experts + 2) / 4);
  EXPECT_THAT(placement_text(placement), ::testing::HasSubstr("experts.slots: 25%"));
  boost::system::error_code error;
  boost::json::parse(placement_json(placement), error);
  EXPECT_FALSE(error);
}

TEST(ProfilePrompts, AreManyAndDifferent) {
  auto prompts = built_in_prompts();
  EXPECT_GE(prompts.size(), 35u);
  std::sort(prompts.begin(), prompts.end());
  EXPECT_EQ(std::adjacent_find(prompts.begin(), prompts.end()), prompts.end());
}

TEST(ProfilePrompts, ComeOnePerLineFromAFile) {
  EXPECT_THAT(read_prompts("# comment\nfirst\r\n\nsecond"), ::testing::ElementsAre("first", "second"));
}

}  // namespace
}  // namespace strata::cli
