#pragma once
// Makes the exchanges: learns from each window that finished, asks the policy, and takes each exchange
// through its four steps (docs/residency.md). One actor, so everything here happens in one place, one message
// after another.
//
//   proposed --Retire--> reserved --copy--> copied --Land--> resident
//        |                   '--not wanted any more: Abandon--> the slot is empty
//        '--refused: dropped
//   at each step: the attachment ended: dropped, the gpu-worker empties the slot
//
// At most one Retire, one Land and one Abandon are on their way at a time; what is copied meanwhile lands
// together.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache-manager/cache_probe.h"
#include "cache-manager/engine_link.h"
#include "cache-manager/expert_copier.h"
#include "cache-manager/learned_profile.h"
#include "cache-manager/residency_control.h"
#include "cache-manager/slot_picture.h"
#include "cache-manager/usage_reader.h"
#include "cache-manager/window_watch.h"
#include "services/actor/actor.h"
#include "services/residency/exchange_budget.h"
#include "services/residency/policy.h"

namespace strata::cache_manager {

struct ExchangeOptions {
  std::string policy = "topic";
  ResidencyControl::MakePolicy make_policy = residency::make_policy;
  double decay_tokens = 256;
  ExchangeRates rates;
  std::chrono::milliseconds attach_retry{200};
  std::chrono::milliseconds save_every{30000};
  std::string learned_path;
  std::vector<uint32_t> experts_per_layer;
  std::vector<uint64_t> record_bytes;  // (layers) of one expert
  // What the policy `static` fills by instead of the learned profile; empty: the learned one.
  std::vector<float> static_profile;
};

struct LayerSummary {
  uint32_t expert_count = 0;
  uint32_t quota = 0;
  std::vector<uint32_t> experts, pinned;  // ascending
  uint64_t exchanges = 0;                 // landed since the cache manager started
  // Since the gpu-worker started.
  uint64_t decode_hits = 0, decode_misses = 0, prefill_hits = 0, prefill_misses = 0;
};

// For `strata status`, `strata residency` and the Cache service.
struct ResidencySummary {
  bool attached = false;
  std::string policy;
  ExchangeRates rates;
  residency::BudgetLimits limits;
  uint32_t in_flight_max = 0;
  bool own_quotas = true;            // the policy's, not an operator's
  std::vector<std::string> changed;  // what an operator changed: ResidencyControl::changed()
  std::vector<LayerSummary> layers;
  uint32_t slots = 0;
  uint32_t slots_used = 0;
  uint32_t in_flight = 0;
  uint64_t exchanges_total = 0;
};

// What others may look at without a message.
struct ExchangeStatus {
  std::atomic<bool> attached{false};
  std::atomic<uint32_t> slots{0}, slots_used{0}, in_flight{0};
  std::atomic<uint64_t> exchanges_total{0};
};

class ExchangeActor final : public actor::Actor {
 public:
  struct Parts {  // all outlive the actor
    EngineLink* link = nullptr;
    ExpertCopier* copier = nullptr;
    WindowWatch* watch = nullptr;
    CacheProbe* probe = nullptr;
  };
  ExchangeActor(std::shared_ptr<actor::Executor> executor, ExchangeOptions options, LearnedProfile learned,
                const Parts& parts);

  // Messages from outside.
  struct Start {};
  struct DescribeResidency {
    std::function<void(ResidencySummary)> reply;
  };
  struct Change {  // errors: ResidencyControl::apply(); kUnavailable while no gpu-worker is attached
    ControlChange change;
    std::function<void(Result<ResidencySummary>)> reply;
  };
  struct SaveProfile {
    std::string path;  // empty: options.learned_path
    bool only_if_changed = false;
    std::function<void(Result<std::string>)> reply;  // where it was written
  };
  // No more exchanges: what is copied lands, the others are abandoned. Replies when none is left.
  struct Stop {
    std::function<void()> reply;
  };
  void on(Start);
  void on(DescribeResidency message);
  void on(Change message);
  void on(SaveProfile message);
  void on(Stop message);

  // Messages to itself. `attachment` counts attempts to attach, so that late replies to an earlier one are
  // told apart.
  struct Attach {};
  struct Look {};
  struct SaveSometimes {};
  struct Granted {
    uint64_t attachment;
    std::shared_ptr<Grant> grant;
  };
  struct Ended {
    uint64_t attachment;
    Status why;
  };
  struct Retired {
    uint64_t attachment;
    std::vector<SlotExchange> exchanges;
    Result<std::vector<bool>> accepted;
  };
  struct Copied {
    uint64_t attachment;
    uint32_t slot;
    CopyResult result;
  };
  struct Landed {
    uint64_t attachment;
    std::vector<uint32_t> slots;
    Status status;
  };
  struct Abandoned {
    uint64_t attachment;
    std::vector<uint32_t> slots;
    Status status;
  };
  struct TryAgain {  // after the gpu-worker's inbox was full
    uint64_t attachment;
  };
  void on(Attach);
  void on(Look);
  void on(SaveSometimes);
  void on(Granted message);
  void on(Ended message);
  void on(Retired message);
  void on(Copied message);
  void on(Landed message);
  void on(Abandoned message);
  void on(TryAgain message);

  const ExchangeStatus& status() const { return status_; }  // any thread

 private:
  enum class Step : uint8_t { kRetiring, kCopying, kCopied, kLanding, kGivenUp, kAbandoning };
  struct InFlight {
    residency::ExpertKey incoming;
    Step step = Step::kRetiring;
    std::shared_ptr<std::atomic<bool>> called_off = std::make_shared<std::atomic<bool>>(false);
    CopyResult copied;
  };
  // Free slots and pinned experts wait for nothing; other exchanges follow the windows and the budget.
  enum class Propose : uint8_t { kUrgent, kAll };

  std::shared_ptr<ExchangeActor> self() {
    return std::static_pointer_cast<ExchangeActor>(shared_from_this());
  }
  bool is_current(uint64_t attachment) const { return grant_ != nullptr && attachment == attachment_; }
  void begin_attachment(std::shared_ptr<Grant> grant);
  void give_up_attachment(const Status& why);
  residency::PolicyOptions policy_options() const;
  Result<std::unique_ptr<residency::Policy>> make_policy(std::string_view name,
                                                         residency::PolicyOptions options) const;

  // Policies that learn topics pass them on to their successors and to the learned profile.
  void keep_topics();

  void propose(Propose what);
  std::vector<SlotExchange> choose(Propose what);
  void begin_copy(const SlotExchange& exchange);
  void settle();
  std::vector<uint32_t> advance(Step from, Step to);
  void land(const std::vector<uint32_t>& slots);
  void abandon(const std::vector<uint32_t>& slots);
  // What is not copied yet is not wanted any more.
  void call_off();
  void drop(uint32_t slot, DropReason reason);
  residency::SlotView view_of(uint32_t slot) const;
  void publish();
  void answer_stop();

  ResidencySummary summary() const;
  std::vector<LayerSummary> layer_summaries() const;

  double seconds_since(actor::Clock::time_point begin) {
    return std::chrono::duration<double>(executor().now() - begin).count();
  }

  ExchangeOptions options_;
  LearnedProfile learned_;
  EngineLink& link_;
  ExpertCopier& copier_;
  WindowWatch& watch_;
  CacheProbe& probe_;
  ExchangeStatus status_;
  ResidencyControl control_;
  residency::ExchangeBudget budget_;

  uint64_t attachment_ = 0;
  std::shared_ptr<Grant> grant_;  // null: not attached
  std::string last_end_;          // why the last attempt ended: said once, not at every try
  UsageReader usage_;
  std::atomic<bool> look_asked_{false};  // a Look is in the mailbox: one is enough
  actor::Clock::time_point looked_;
  actor::Clock::time_point next_look_;  // not before
  std::unique_ptr<residency::Policy> policy_;
  SlotPicture slots_;
  std::map<uint32_t, InFlight> in_flight_;  // by slot
  uint32_t copies_running_ = 0;             // over all attachments
  bool retiring_ = false, landing_ = false, abandoning_ = false;
  std::optional<Propose> put_off_;  // asked for while a Retire was on its way
  actor::Clock::time_point retire_sent_, land_sent_;
  uint64_t exchanges_total_ = 0;
  std::vector<uint64_t> layer_exchanges_;  // (layers)
  bool stopped_ = false;                   // by Stop: nothing new begins
  std::function<void()> stopping_;         // the reply to Stop, until it is given
};

}  // namespace strata::cache_manager
