#pragma once
// Replays recorded routing through a residency policy, window by window, the way the running cluster would:
// what is resident stands still within a window, exchanges happen between windows and within a budget.
//
// A window is one generated token (batch of one), or a chunk of prompt tokens. After every `windows_per_look`
// windows the policy hears what was used and proposes; a victim leaves at once, a newcomer is a hit from
// `landing_windows` windows after the next one on (0: the exchange is complete before the next window).

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "services/residency/exchange_budget.h"
#include "services/residency/policy.h"
#include "services/residency/trace.h"

namespace strata::simulation {

struct ReplayOptions {
  uint32_t slots = 0;
  residency::BudgetLimits limits = {};
  uint32_t prefill_chunk_tokens = 512;
  uint32_t windows_per_look = 1;
  uint32_t landing_windows = 0;
  double windows_per_second = 150;  // turns windows into the seconds of limits.bytes_per_second
  uint64_t expert_bytes = 1;
};

// Sums of everything that one or more calls of run() replayed.
struct ReplayResult {
  uint64_t decode_hits = 0, decode_uses = 0;
  uint64_t prefill_hits = 0, prefill_uses = 0;
  uint64_t windows = 0;
  uint64_t exchanges = 0;  // the fill before the first window not counted
  uint64_t bytes = 0;      // copied by exchanges

  double decode_rate() const { return rate(decode_hits, decode_uses); }  // 0 without uses
  double prefill_rate() const { return rate(prefill_hits, prefill_uses); }

 private:
  static double rate(uint64_t hits, uint64_t uses) {
    return uses == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(uses);
  }
};

class Replay {
 public:
  // Fills the slots by the policy's first choice. The trace outlives the replay; its shape is the policy's.
  Replay(const residency::RoutingTrace& trace, std::unique_ptr<residency::Policy> policy,
         const ReplayOptions& options);

  // Replays one of the trace's conversations on the arena as the last one left it.
  void run(const residency::RoutingTrace::Conversation& conversation);

  const ReplayResult& result() const { return result_; }
  // Hits of each generated token so far, of trace.layers * trace.used uses.
  const std::vector<uint32_t>& hits_of_tokens() const { return hits_of_tokens_; }

 private:
  struct Landing {
    uint64_t window = 0;  // resident from this one on
    uint32_t slot = 0;
  };

  std::size_t index(residency::ExpertKey key) const {
    return std::size_t{key.layer} * trace_.experts + key.expert;
  }
  void window(const residency::RoutingTrace::Conversation& conversation, std::size_t begin, std::size_t end,
              bool generated);
  void look();
  void begin_exchanges(const std::vector<residency::Proposal>& proposals);
  void land();

  const residency::RoutingTrace& trace_;
  std::unique_ptr<residency::Policy> policy_;
  const ReplayOptions options_;
  residency::ExchangeBudget budget_;
  std::vector<residency::SlotView> slots_;
  std::vector<uint8_t> resident_;                     // (layers, experts)
  std::deque<Landing> landings_;                      // in the order of their windows
  std::vector<uint32_t> decode_uses_, prefill_uses_;  // since the last look
  uint64_t decode_tokens_ = 0, prefill_tokens_ = 0;
  uint32_t windows_since_look_ = 0;
  ReplayResult result_;
  std::vector<uint32_t> hits_of_tokens_;
};

}  // namespace strata::simulation
