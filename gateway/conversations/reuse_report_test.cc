#include "gateway/conversations/reuse_report.h"

#include <gmock/gmock.h>

#include <boost/json/serialize.hpp>

#include "gateway/conversations/conversation_probe.h"

namespace strata::gateway {
namespace {

using testing::HasSubstr;

constexpr NamespaceId kAlice{.high = 1, .low = 1};
constexpr SnapshotId kState{.high = 0, .low = 0xA1}, kOther{.high = 0, .low = 0xB2};

PrefixMatch match_of(Source source, uint32_t position, const NamespaceId& owner = kAlice) {
  PrefixMatch match;
  match.state = StateInfo{.id = kState, .source = source, .owner = owner, .position = position};
  match.known_tokens = position + 10;
  match.why = {.cause = MissCause::kDiverged, .at_token = position + 10, .entry = kOther};
  return match;
}

PrefixMatch miss_of(MissCause cause) { return {.why = {.cause = cause, .at_token = 5}}; }

TEST(ReuseReport, SaysWhatWasReusedFromWhereAndWhyNotMore) {
  const ReuseReport report(match_of(Source::kRam, 1500), 1520);
  EXPECT_EQ(
      boost::json::serialize(report.to_json()),
      R"({"prompt_tokens":1520,"reused_tokens":1500,"known_tokens":1510,"source":"ram","shared":false,)"
      R"("state":"000000000000000000000000000000a1","why_not_more":{"cause":"diverged","at_token":1510,)"
      R"("state":"000000000000000000000000000000b2",)"
      R"("text":"the prompt goes on otherwise than before from token 1510 on"}})");
  EXPECT_EQ(report.header_text(), "reused=1500 prompt=1520 source=ram not_more=diverged at=1510");
}

TEST(ReuseReport, OfAMissAndOfAFullHit) {
  const ReuseReport miss(miss_of(MissCause::kNew), 20);
  EXPECT_EQ(
      boost::json::serialize(miss.to_json()),
      R"({"prompt_tokens":20,"reused_tokens":0,"known_tokens":0,"source":null,"shared":false,"state":null,)"
      R"("why_not_more":{"cause":"new","at_token":5,"state":null,"text":"the tokens from 5 on are new"}})");
  EXPECT_EQ(miss.header_text(), "reused=0 prompt=20 not_more=new at=5");
  PrefixMatch all = match_of(Source::kLive, 19, shared_namespace());
  all.why = {};
  const ReuseReport full(all, 20);
  EXPECT_TRUE(full.to_json().at("why_not_more").is_null());
  EXPECT_TRUE(full.to_json().at("shared").as_bool());
  EXPECT_EQ(full.header_text(), "reused=19 prompt=20 source=root");
}

TEST(ReuseReport, EveryCauseHasASentence) {
  std::set<std::string> texts;
  for (int cause = 0; cause <= static_cast<int>(MissCause::kError); ++cause) {
    texts.insert(ReuseReport(miss_of(static_cast<MissCause>(cause)), 20).why_text());
  }
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(MissCause::kError) + 1);
  EXPECT_FALSE(texts.contains(""));
}

TEST(ReuseReport, ResultsAreNamedBySource) {
  const auto result = [](Source source, const NamespaceId& owner = kAlice) {
    return lookup_result_name(ReuseReport(match_of(source, 30, owner), 50).result());
  };
  EXPECT_EQ(result(Source::kRunning), "hit_live");
  EXPECT_EQ(result(Source::kLive), "hit_live");
  EXPECT_EQ(result(Source::kCheckpoint), "hit_live");
  EXPECT_EQ(result(Source::kRam), "hit_ram");
  EXPECT_EQ(result(Source::kDisk), "hit_disk");
  EXPECT_EQ(result(Source::kDisk, shared_namespace()), "hit_root");
  EXPECT_EQ(lookup_result_name(ReuseReport(miss_of(MissCause::kNew), 3).result()), "miss");
}

TEST(ReuseReport, TheEngineConfirmsWhatTheIndexPromised) {
  ReuseReport report(match_of(Source::kDisk, 1500), 1520);
  for (const std::optional<Source> source : {std::optional<Source>(), std::optional(Source::kDisk)}) {
    report.began({.reused_tokens = 1500, .source = source});
    EXPECT_EQ(report.why().cause, MissCause::kDiverged);
    EXPECT_EQ(report.result(), LookupResult::kHitDisk);
    EXPECT_FALSE(report.to_json().at("state").is_null());
  }
  report.began({.reused_tokens = 1500, .source = Source::kRam});  // read from disk in the meantime
  EXPECT_EQ(report.result(), LookupResult::kHitRam);
  EXPECT_FALSE(report.to_json().at("state").is_null());
  report.began({.reused_tokens = 1500, .source = Source::kLive});
  EXPECT_EQ(report.result(), LookupResult::kHitLive);
  EXPECT_TRUE(report.to_json().at("state").is_null()) << "that was another state";
  ReuseReport root(match_of(Source::kCheckpoint, 1500, shared_namespace()), 1520);
  root.began({.reused_tokens = 1500, .source = Source::kCheckpoint});
  EXPECT_EQ(root.result(), LookupResult::kHitRoot);
}

TEST(ReuseReport, AnEngineThatBeginsFurtherBackCouldNotRestore) {
  ReuseReport report(match_of(Source::kDisk, 1500), 1520);
  report.began({.reused_tokens = 1000});
  EXPECT_EQ(report.reused_tokens(), 1000u);
  EXPECT_EQ(report.result(), LookupResult::kHitLive) << "the nearest checkpoint before";
  EXPECT_EQ(report.why().cause, MissCause::kError);
  EXPECT_EQ(report.why().at_token, 1500u);
  EXPECT_EQ(report.why().entry, kState);
  EXPECT_TRUE(report.to_json().at("state").is_null());
  report.began({.reused_tokens = 1000, .source = Source::kRam, .not_restored = "page 3 is damaged"});
  EXPECT_EQ(report.result(), LookupResult::kHitRam);
  EXPECT_EQ(report.why_text(), "a state with 1500 tokens could not be restored: page 3 is damaged");

  ReuseReport failed(match_of(Source::kDisk, 1500, shared_namespace()), 1520);
  failed.began({.reused_tokens = 0});
  EXPECT_EQ(failed.result(), LookupResult::kMiss);
  EXPECT_THAT(failed.header_text(), HasSubstr("not_more=error at=1500"));
  failed.began({.reused_tokens = 1500});  // the next call
  EXPECT_EQ(failed.result(), LookupResult::kHitRoot);
  EXPECT_EQ(failed.why().cause, MissCause::kDiverged);
}

TEST(ReuseReport, AnEngineMayKnowMoreThanTheIndexHasHeardOf) {
  ReuseReport report(match_of(Source::kRam, 1500), 1520);
  report.began({.reused_tokens = 1505});
  EXPECT_EQ(report.result(), LookupResult::kHitLive);
  EXPECT_EQ(report.log_text(), "reused=1505 source=live not_more=diverged at=1510");
  EXPECT_TRUE(report.to_json().at("state").is_null());
  report.began({.reused_tokens = 1515, .source = Source::kCheckpoint});
  EXPECT_EQ(report.log_text(), "reused=1515 source=checkpoint not_more=new at=1515");
  EXPECT_EQ(report.known_tokens(), 1515u);
  report.began({.reused_tokens = 1519});
  EXPECT_EQ(report.why().cause, MissCause::kNone);
  report.began({.reused_tokens = 1524});  // an answer that is continued: all of its prompt, and more
  EXPECT_EQ(report.reused_tokens(), 1520u);

  ReuseReport unknown(miss_of(MissCause::kTooSmall), 20);
  unknown.began({.reused_tokens = 8});
  EXPECT_EQ(unknown.log_text(), "reused=8 source=live not_more=new at=8");
}

TEST(ReuseReport, TheSplitAddsUpToThePrompt) {
  ReuseReport report(match_of(Source::kRam, 1000), 1520);
  EXPECT_EQ(report.split(), (CacheSplit{.input_tokens = 520, .cache_read_input_tokens = 1000}));
  report.kept(900);
  EXPECT_EQ(report.split().cache_creation_input_tokens, 0u);
  report.kept(1400);
  report.kept(1200);
  EXPECT_EQ(
      report.split(),
      (CacheSplit{.input_tokens = 120, .cache_read_input_tokens = 1000, .cache_creation_input_tokens = 400}));
  report.kept(99'999);
  EXPECT_EQ(
      report.split(),
      (CacheSplit{.input_tokens = 0, .cache_read_input_tokens = 1000, .cache_creation_input_tokens = 520}));
}

class ConversationProbeTest : public testing::Test {
 protected:
  // Of the sample with this label, or the sum of all samples.
  double value(const std::string& name, const std::string& label = "") const {
    double sum = 0;
    for (const auto& family : metrics_.collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        const bool here =
            std::ranges::any_of(metric.label, [&](const auto& one) { return one.value == label; });
        if (label.empty() || here) sum += metric.counter.value + metric.gauge.value;
      }
    }
    return sum;
  }
  std::size_t samples(const std::string& name) const {
    for (const auto& family : metrics_.collect()) {
      if (family.name == name) return family.metric.size();
    }
    return 0;
  }

  obs::Metrics metrics_{{}};
  ConversationProbe probe_{metrics_};
};

TEST_F(ConversationProbeTest, EveryLabelIsThereFromTheStart) {
  EXPECT_EQ(samples("strata_conv_lookups_total"), 5u);
  EXPECT_EQ(samples("strata_conv_misses_total"), 8u);
  EXPECT_EQ(samples("strata_conv_entries"), 4u);
  EXPECT_EQ(samples("strata_prompt_tokens_total"), 5u);
  EXPECT_EQ(samples("strata_conv_common_prefix_tokens"), 1u);
}

TEST_F(ConversationProbeTest, MissesAddUpToTheLookupsThatMissed) {
  for (int cause = 1; cause <= static_cast<int>(MissCause::kError); ++cause) {
    probe_.looked_up(ReuseReport(miss_of(static_cast<MissCause>(cause)), 20));
  }
  probe_.looked_up(ReuseReport(match_of(Source::kRam, 1500), 1520));
  probe_.looked_up(ReuseReport(match_of(Source::kDisk, 30, shared_namespace()), 50));
  EXPECT_EQ(value("strata_conv_lookups_total", "miss"), 8);
  EXPECT_EQ(value("strata_conv_misses_total"), 8);
  EXPECT_EQ(value("strata_conv_misses_total", "options_changed"), 1);
  EXPECT_EQ(value("strata_conv_lookups_total", "hit_ram"), 1);
  EXPECT_EQ(value("strata_conv_lookups_total", "hit_root"), 1);
  EXPECT_EQ(value("strata_conv_lookups_total"), 10);
}

TEST_F(ConversationProbeTest, PromptTokensAreComputedOrReused) {
  probe_.prompt_read(ReuseReport(match_of(Source::kRam, 1500), 1520), 1520);
  probe_.prompt_read(ReuseReport(match_of(Source::kLive, 100), 200), 150);  // the client left
  probe_.prompt_read(ReuseReport(match_of(Source::kDisk, 70), 90), 0);      // before anything was restored
  probe_.prompt_read(ReuseReport(miss_of(MissCause::kNew), 30), 30);
  EXPECT_EQ(value("strata_prompt_tokens_total", "computed"), 20 + 50 + 30);
  EXPECT_EQ(value("strata_prompt_tokens_total", "reused_ram"), 1500);
  EXPECT_EQ(value("strata_prompt_tokens_total", "reused_live"), 100);
  EXPECT_EQ(value("strata_prompt_tokens_total", "reused_disk"), 0);
  EXPECT_EQ(value("strata_prompt_tokens_total"), 1520 + 150 + 30);
}

TEST_F(ConversationProbeTest, EntriesAreCountedByTier) {
  probe_.count_entries({.own = {1, 2, 4, 8, 16}, .roots = {1, 0, 1, 1, 1}});
  EXPECT_EQ(value("strata_conv_entries", "vram"), 7);
  EXPECT_EQ(value("strata_conv_entries", "ram"), 8);
  EXPECT_EQ(value("strata_conv_entries", "disk"), 16);
  EXPECT_EQ(value("strata_conv_entries", "root"), 4);
}

}  // namespace
}  // namespace strata::gateway
