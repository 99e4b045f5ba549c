#pragma once
// What the gateway counts of the conversation cache: searches, why they failed, tokens by where their state
// came from, and how many states there are. Bytes, budgets, evictions and the times of saving and restoring
// are counted by the processes that do it. Every label value exists from the start.

#include <array>
#include <map>

#include "gateway/conversations/reuse_report.h"
#include "services/obs/metrics.h"

namespace strata::gateway {

class ConversationProbe {
 public:
  explicit ConversationProbe(obs::Metrics& metrics);

  // A search whose outcome is known: the engine has begun. Misses add up to the lookups that are misses.
  void looked_up(const ReuseReport& report);
  // tokens_read: of the prompt, those reused included, until it was complete or the client left. What is
  // counted adds up to the tokens of all prompts read.
  void prompt_read(const ReuseReport& report, uint32_t tokens_read);
  // entries by tier: on devices, in RAM, on disk, and shared roots wherever they are.
  void count_entries(const IndexStats& stats);

 private:
  std::map<LookupResult, prometheus::Counter*> lookups_;
  std::map<MissCause, prometheus::Counter*> misses_;
  std::map<LookupResult, prometheus::Counter*> reused_tokens_;  // kMiss: the computed ones
  std::array<prometheus::Gauge*, 4> entries_ = {};              // vram, ram, disk, root
  prometheus::Histogram& common_prefix_;
};

}  // namespace strata::gateway
