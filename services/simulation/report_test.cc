#include "services/simulation/report.h"

#include <gmock/gmock.h>

#include <boost/json.hpp>

namespace strata::simulation {
namespace {

namespace json = boost::json;
using testing::HasSubstr;
using testing::Not;

std::vector<Row> rows() {
  ReplayResult good, bad;
  good.decode_hits = 80;
  good.decode_uses = 100;
  good.prefill_hits = 5;
  good.prefill_uses = 10;
  good.windows = 10;
  good.exchanges = 20;
  good.bytes = 2'000'000;
  bad.decode_hits = 20;
  bad.decode_uses = 100;
  bad.windows = 10;
  const std::vector<ConversationRow> conversations = {{"a", good, 0.8, 0.9, 0.85}, {"b", bad, 0.4, 0.7, 0.5}};
  std::vector<Row> all;
  for (const auto& [policy, text, slots] :
       {std::tuple("topic", "10%", 51U), std::tuple("lru", "10%", 51U), std::tuple("topic", "50%", 256U)}) {
    Row& row = all.emplace_back();
    row.policy = policy;
    row.budget = {text, slots};
    row.conversations = conversations;
  }
  return all;
}

TEST(ReportTest, MeansAreOverConversations) {
  const Row row = rows()[0];
  EXPECT_DOUBLE_EQ(row.hit_rate(), 0.5);
  EXPECT_DOUBLE_EQ(row.oracle(), 0.6);
  EXPECT_DOUBLE_EQ(row.belady(), 0.8);
  EXPECT_DOUBLE_EQ(row.prefill_hit_rate(), 0.5) << "only of those with prompts";
  EXPECT_DOUBLE_EQ(row.least_of_oracle(), 0.5);
  EXPECT_EQ(row.total().windows, 20U);
}

TEST(ReportTest, TheTableHasAPartForEachBudgetAndALineForEachPolicy) {
  const std::string text = report_text(rows(), false);
  EXPECT_THAT(text, HasSubstr("51 slots (10%): oracle 0.600, Belady 0.800"));
  EXPECT_THAT(text, HasSubstr("256 slots (50%)"));
  EXPECT_THAT(text,
              HasSubstr("topic           0.500     0.833   0.500   0.300   0.500         1.00        2.0"));
  EXPECT_THAT(text, Not(HasSubstr("    a ")));
  EXPECT_THAT(report_text(rows(), true),
              HasSubstr("    a                    0.800  of oracle 1.000 (0.800)"));
}

TEST(ReportTest, TheRowsForProgramsHaveWhatTheHeaderLists) {
  const json::value parsed = json::parse(report_json(rows()));
  ASSERT_EQ(parsed.as_array().size(), 3U);
  const json::object& row = parsed.as_array()[0].as_object();
  EXPECT_EQ(row.at("policy"), "topic");
  EXPECT_EQ(row.at("budget"), "10%");
  EXPECT_EQ(row.at("slots"), 51);
  EXPECT_DOUBLE_EQ(row.at("hit_rate").to_number<double>(), 0.5);
  EXPECT_DOUBLE_EQ(row.at("oracle_hit_rate").to_number<double>(), 0.6);
  EXPECT_DOUBLE_EQ(row.at("belady_hit_rate").to_number<double>(), 0.8);
  EXPECT_DOUBLE_EQ(row.at("foresight_hit_rate").to_number<double>(), 0.675);
  EXPECT_DOUBLE_EQ(row.at("regret").to_number<double>(), 0.3);
  EXPECT_EQ(row.at("exchanges"), 20);
  EXPECT_EQ(row.at("bytes"), 2'000'000);
  const json::array& conversations = row.at("conversations").as_array();
  ASSERT_EQ(conversations.size(), 2U);
  EXPECT_EQ(conversations[1].at("name"), "b");
  const double uses = conversations[1].at("decode_uses").to_number<double>();
  EXPECT_GT(uses, 0);
  EXPECT_NEAR(conversations[1].at("decode_hits").to_number<double>() / uses,
              conversations[1].at("hit_rate").to_number<double>(), 1e-6);
  EXPECT_DOUBLE_EQ(conversations[1].at("hit_rate").to_number<double>(), 0.2);
}

TEST(ReportTest, TheDrawingHasACurveForEachPolicyAndBound) {
  const std::string svg = report_svg(rows(), 512, "T & T");
  for (const char* name : {">topic<", ">lru<", ">oracle (fixed)<", ">foresight<", ">Belady, unlimited<"})
    EXPECT_THAT(svg, HasSubstr(name));
  EXPECT_THAT(svg, HasSubstr("T &amp; T"));
}

}  // namespace
}  // namespace strata::simulation
