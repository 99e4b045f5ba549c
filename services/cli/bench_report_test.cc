#include "services/cli/bench_report.h"

#include <gmock/gmock.h>

#include <boost/json.hpp>

namespace strata::cli {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

BenchReport report() {
  BenchReport made;
  made.subject = {.synthetic_weights = "random weights: demo-shape",
                  .synthetic_routing = "mild",
                  .model = "SYNTHETIC demo-shape",
                  .device = "host",
                  .numerics = "reproducible",
                  .model_bytes = 28000000,
                  .cpus = 2,
                  .context_tokens = 4096,
                  .sequences = 4,
                  .expert_slots = 128,
                  .experts_total = 512};
  made.warm_up = {.tokens = 400, .seconds = 2, .hit_rate = 0.5, .settled = true};
  made.decode.push_back({.clients = 2,
                         .tokens = 400,
                         .tokens_per_second = 123.4,
                         .first_token_ms = 5,
                         .pause_ms_median = 7,
                         .pause_ms_p99 = 9,
                         .hit_rate = 0.625,
                         .windows = 200,
                         .window_ms = 8,
                         .exchanges = 37,
                         .exchange_wait_seconds = 0.0008,
                         .phase_ms = {{"mixers", 3.0}, {"head", 1.0}}});
  made.prefill.push_back(
      {.tokens = 512, .tokens_per_second = 999, .first_token_ms = 512, .hit_rate = std::nullopt});
  made.prefill_left_out = {30000};
  made.host_bytes = {{"kv", 1e6}};
  return made;
}

TEST(BenchReport, SaysWhatExchangesCostTheWindows) {
  EXPECT_THAT(
      bench_text(report()),
      HasSubstr("2: 37 exchanges; 200 windows waited 0.000800 s for them in all, 0.0500% of their time, "
                "0.004000 s per 1,000 windows\n"));
  const json::value parsed = json::parse(bench_json(report()));
  EXPECT_EQ(parsed.at("decode").at(0).at("exchanges").to_number<int>(), 37);
  EXPECT_EQ(parsed.at("decode").at(0).at("exchange_wait_seconds").as_double(), 0.0008);
  BenchReport nothing_ran = report();
  nothing_ran.decode[0].windows = 0;
  EXPECT_THAT(bench_text(nothing_ran), Not(HasSubstr("exchanges;")));
}

TEST(BenchReport, SaysWhatAGrammarCostsTheWindows) {
  EXPECT_THAT(bench_text(report()), Not(HasSubstr("grammar")));
  BenchReport both = report();
  both.decode.push_back(both.decode[0]);
  both.decode[1].constrained = true;
  both.decode[1].window_ms = 8.2;
  const std::string text = bench_text(both);
  EXPECT_THAT(text, HasSubstr("      2: windows under a grammar take 8.200 ms, +2.5%\n"));
  EXPECT_THAT(text, HasSubstr("decode window of 2 clients, constrained, ms by phase"));
  const json::value parsed = json::parse(bench_json(both));
  EXPECT_FALSE(parsed.at("decode").at(0).at("constrained").as_bool());
  EXPECT_TRUE(parsed.at("decode").at(1).at("constrained").as_bool());
}

TEST(BenchReport, BothFormsSayThatItIsSynthetic) {
  EXPECT_THAT(bench_text(report()),
              StartsWith("SYNTHETIC weights (random weights: demo-shape) and routing (mild)"));
  const json::value parsed = json::parse(bench_json(report()));
  EXPECT_TRUE(parsed.at("synthetic").at("weights").as_bool());
  EXPECT_TRUE(parsed.at("synthetic").at("routing").as_bool());
  EXPECT_THAT(std::string(parsed.at("synthetic").at("note").as_string()), HasSubstr("mean nothing"));
  BenchReport real = report();
  real.subject.model = "demo";
  real.subject.synthetic_weights.clear();
  EXPECT_THAT(bench_text(real), StartsWith("SYNTHETIC routing (mild)"));
  real.subject.synthetic_routing.clear();
  EXPECT_THAT(bench_text(real), Not(HasSubstr("SYNTHETIC")));
  EXPECT_FALSE(json::parse(bench_json(real)).at("synthetic").at("weights").as_bool());
}

TEST(BenchReport, HasEveryFigureInBothForms) {
  const std::string text = bench_text(report());
  for (const char* part : {"123.4", "62.5%", "mixers", "999.0", "30000 left out", "128 of 512", "kv", "28"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("still changing")));
  EXPECT_THAT(text, Not(HasSubstr("device memory"))) << "the host device has none of its own";
  const json::value parsed = json::parse(bench_json(report()));
  const json::value& decode = parsed.at("decode").at(0);
  EXPECT_EQ(decode.at("tokens_per_second").as_double(), 123.4);
  EXPECT_EQ(decode.at("phase_ms").at("mixers").as_double(), 3.0);
  EXPECT_EQ(decode.at("pause_ms").at("p99").as_double(), 9);
  EXPECT_TRUE(parsed.at("prefill").at(0).at("hit_rate").is_null());
  EXPECT_EQ(parsed.at("prefill_left_out").at(0).to_number<int>(), 30000);
  EXPECT_EQ(parsed.at("memory").at("host_bytes").at("kv").as_double(), 1e6);
  EXPECT_TRUE(parsed.at("warm_up").at("settled").as_bool());
}

}  // namespace
}  // namespace strata::cli
