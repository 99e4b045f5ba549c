#include "gateway/conversations/conversation_probe.h"

#include <algorithm>
#include <string>

namespace strata::gateway {

namespace {

constexpr LookupResult kResults[] = {LookupResult::kHitLive, LookupResult::kHitRam, LookupResult::kHitDisk,
                                     LookupResult::kHitRoot, LookupResult::kMiss};
constexpr MissCause kCauses[] = {MissCause::kNew,          MissCause::kDiverged,       MissCause::kEvicted,
                                 MissCause::kIdentity,     MissCause::kOptionsChanged, MissCause::kTooSmall,
                                 MissCause::kNoCheckpoint, MissCause::kError};
constexpr const char* kTiers[] = {"vram", "ram", "disk", "root"};

// From a system prompt of a few lines to a full context.
const std::vector<double> kPrefixBounds = {0,    16,    64,    256,   1024,    4096,
                                           8192, 16384, 32768, 65536, 131'072, 262'144};

std::string tokens_source(LookupResult result) {
  switch (result) {
    case LookupResult::kHitLive:
      return "reused_live";
    case LookupResult::kHitRam:
      return "reused_ram";
    case LookupResult::kHitDisk:
      return "reused_disk";
    case LookupResult::kHitRoot:
      return "reused_root";
    case LookupResult::kMiss:
      return "computed";
  }
  return "";
}

}  // namespace

ConversationProbe::ConversationProbe(obs::Metrics& metrics)
    : common_prefix_(metrics.histogram("strata_conv_common_prefix_tokens",
                                       "Tokens of a prompt that somebody in its namespace had read before, "
                                       "whether or not a state was there; "
                                       "much more than what is reused: keep more checkpoints.",
                                       kPrefixBounds)) {
  for (const LookupResult result : kResults) {
    lookups_[result] = &metrics.counter("strata_conv_lookups_total",
                                        "Prompts by where the state came from that they were continued from.",
                                        {{"result", std::string(lookup_result_name(result))}});
    reused_tokens_[result] =
        &metrics.counter("strata_prompt_tokens_total", "Prompt tokens by where their state came from.",
                         {{"source", tokens_source(result)}});
  }
  for (const MissCause cause : kCauses) {
    misses_[cause] = &metrics.counter(
        "strata_conv_misses_total",
        "Prompts of which nothing was reused, by why; many evicted: the budgets are too small.",
        {{"cause", std::string(miss_cause_name(cause))}});
  }
  for (std::size_t tier = 0; tier < entries_.size(); ++tier) {
    entries_[tier] = &metrics.gauge("strata_conv_entries", "States that the index knows, by where they are.",
                                    {{"tier", kTiers[tier]}});
  }
}

void ConversationProbe::looked_up(const ReuseReport& report) {
  lookups_.at(report.result())->Increment();
  if (report.result() == LookupResult::kMiss) misses_.at(report.why().cause)->Increment();
  common_prefix_.Observe(report.known_tokens());
}

void ConversationProbe::prompt_read(const ReuseReport& report, uint32_t tokens_read) {
  const uint32_t reused = std::min(report.reused_tokens(), tokens_read);
  if (reused > 0) reused_tokens_.at(report.result())->Increment(reused);
  reused_tokens_.at(LookupResult::kMiss)->Increment(tokens_read - reused);
}

void ConversationProbe::count_entries(const IndexStats& stats) {
  const auto own = [&stats](Source source) { return stats.own[static_cast<std::size_t>(source)]; };
  uint64_t roots = 0;
  for (const uint64_t count : stats.roots) roots += count;
  entries_[0]->Set(
      static_cast<double>(own(Source::kRunning) + own(Source::kLive) + own(Source::kCheckpoint)));
  entries_[1]->Set(static_cast<double>(own(Source::kRam)));
  entries_[2]->Set(static_cast<double>(own(Source::kDisk)));
  entries_[3]->Set(static_cast<double>(roots));
}

}  // namespace strata::gateway
