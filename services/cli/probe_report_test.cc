#include "services/cli/probe_report.h"

#include <gmock/gmock.h>

#include <boost/json.hpp>

namespace strata::cli {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;

ProbeReport report() {
  ProbeReport made;
  made.model = "strata-demo";
  made.plan = {.conversations = 2, .tokens = 1500, .seed = 42, .context_tokens = 4096};
  made.results.push_back(
      {.pattern = "alternate",
       .series = {{.name = "cold", .samples = {{2.0, 1520, 0}, {1.0, 1510, 10}}},
                  {.name = "switched",
                   .samples = {{0.03, 1600, 1550}, {0.06, 1700, 1650}, {0.045, 1650, 1600}}}},
       .compared = 2,
       .identical = 2});
  made.left_out.emplace_back("loop", "loop needs more");
  return made;
}

TEST(ProbeReport, MediansOfOddAndEvenCounts) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 3}), 3);
  EXPECT_EQ(median({4, 1, 2, 100}), 3);
}

TEST(ProbeReport, IsATable) {
  EXPECT_EQ(probe_text(report()),
            "strata-demo: about 1500 tokens, seed 42; time to first token\n"
            "\n"
            "pattern    request       n     median      worst   of cold  prompt  reused\n"
            "alternate  cold          2     1.50 s     2.00 s         -    1515       5\n"
            "           switched      3    45.0 ms    60.0 ms      3.0%    1650    1600\n"
            "\n"
            "alternate: 2 of 2 greedy answers are the same after a switch\n"
            "left out: loop needs more\n");
}

TEST(ProbeReport, SaysThatAColdReadWasNone) {
  EXPECT_THAT(probe_text(report()), Not(HasSubstr("another --seed")));
  ProbeReport known = report();
  for (ProbeSample& sample : known.results[0].series[0].samples) sample.cached_tokens = 700;
  EXPECT_THAT(probe_text(known),
              HasSubstr("alternate: cold reads found 700 of 1515 tokens: use another --seed\n"));
}

TEST(ProbeReport, HasTheSameFiguresForPrograms) {
  const json::value parsed = json::parse(probe_json(report()));
  EXPECT_DOUBLE_EQ(parsed.at("cold_ttft_s").as_double(), 1.5);
  EXPECT_DOUBLE_EQ(parsed.at("switched_ttft_s").as_double(), 0.045);
  EXPECT_DOUBLE_EQ(parsed.at("switched_cached_tokens").as_double(), 1600);
  EXPECT_EQ(parsed.at("seed").to_number<int>(), 42);
  EXPECT_EQ(parsed.at("context_tokens").to_number<int>(), 4096);
  const json::value& alternate = parsed.at("patterns").at(0);
  EXPECT_EQ(alternate.at("identical").to_number<int>(), 2);
  const json::value& switched = alternate.at("series").at(1);
  EXPECT_EQ(switched.at("name"), "switched");
  EXPECT_DOUBLE_EQ(switched.at("worst_ttft_s").as_double(), 0.06);
  EXPECT_NEAR(switched.at("ratio_to_cold").as_double(), 0.03, 1e-12);
  EXPECT_EQ(switched.at("requests").as_array().size(), 3u);
  EXPECT_EQ(switched.at("requests").at(1).at("cached_tokens").to_number<int>(), 1650);
  EXPECT_EQ(parsed.at("left_out").at(0).at("pattern"), "loop");
  EXPECT_EQ(parsed.as_object().count("tax"), 0u);
}

TEST(ProbeReport, TheTaxIsTheMedianOfThePairsRatios) {
  ProbeReport paired = report();
  paired.pairs = {{.step_s = 0.103, .against_s = 0.1},
                  {.step_s = 0.2, .against_s = 0.1},
                  {.step_s = 0.101, .against_s = 0.1}};
  paired.against = {"conversations.ram_budget=0"};
  EXPECT_NEAR(probe_tax(paired), 0.03, 1e-9);
  EXPECT_THAT(probe_text(paired),
              HasSubstr("  pair         step      against     ratio\n"
                        "     1     103.0 ms     100.0 ms    103.0%\n"
                        "     2     200.0 ms     100.0 ms    200.0%\n"
                        "     3     101.0 ms     100.0 ms    101.0%\n"
                        "a step costs +3.0% against conversations.ram_budget=0 (median of 3 pairs)\n"));
  const json::value parsed = json::parse(probe_json(paired));
  EXPECT_NEAR(parsed.at("tax").as_double(), 0.03, 1e-9);
  EXPECT_EQ(parsed.at("pairs").as_array().size(), 3u);
  EXPECT_EQ(parsed.at("against").at(0), "conversations.ram_budget=0");
}

TEST(ProbeReport, AnotherAnswerIsAFault) {
  EXPECT_FALSE(probe_found_wrong(report()));
  ProbeReport wrong = report();
  wrong.results[0].identical = 1;
  EXPECT_TRUE(probe_found_wrong(wrong));
  EXPECT_THAT(probe_text(wrong), HasSubstr("1 of 2 greedy answers are the same"));
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(ProbePlot, DrawsEveryRequestOverWholeDecades) {
  const std::string svg = probe_svg(report());
  EXPECT_EQ(count(svg, "<circle"), 5u);
  for (const char* part :
       {"alternate", "switched", "10 ms", "100 ms", "1 s", "10 s", "1550 of 1600 tokens reused"})
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  // A time of zero has no logarithm, and nothing has no range.
  ProbeReport odd = report();
  odd.results[0].series[0].samples[0].seconds = 0;
  EXPECT_THAT(probe_svg(odd), Not(HasSubstr("inf")));
  odd.results.clear();
  EXPECT_THAT(probe_svg(odd), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace strata::cli
