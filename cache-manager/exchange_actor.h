#pragma once
// Makes the exchanges: watches the usage, asks the policy, and takes each exchange through its four steps
// (docs/residency.md). One actor, so everything here happens in one place, one message after another.
//
//   proposed --Retire--> reserved --copy--> copied --Land--> resident
//        '--refused: dropped    '--attachment ended: dropped, the gpu-worker empties the slot
//
// At most one Retire and one Land are on their way at a time; what is copied meanwhile lands together.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache-manager/cache_probe.h"
#include "cache-manager/engine_link.h"
#include "cache-manager/expert_copier.h"
#include "cache-manager/learned_profile.h"
#include "cache-manager/usage_reader.h"
#include "services/actor/actor.h"
#include "services/residency/policy.h"

namespace strata::cache_manager {

struct ExchangeOptions {
  std::string policy = "lfu-decay";
  std::function<Result<std::unique_ptr<residency::Policy>>(std::string_view, residency::PolicyOptions)>
      make_policy = residency::make_policy;
  double decay_tokens = 256;
  uint32_t in_flight_max = 4;  // 0: residency stays as it is
  std::chrono::milliseconds interval{50};
  std::chrono::milliseconds attach_retry{200};
  std::chrono::milliseconds save_every{30000};
  std::string learned_path;
  std::vector<uint32_t> experts_per_layer;
  std::vector<float>
      fill_profile;  // what the arena is filled by instead of the learned profile; empty: the learned one
};

// For `strata status` and the Cache service.
struct ResidencySummary {
  bool attached = false;
  std::string policy;
  std::vector<uint32_t> quotas;                // per layer
  std::vector<std::vector<uint32_t>> experts;  // per layer, ascending
  uint32_t slots = 0;
  uint32_t slots_used = 0;
  uint32_t in_flight = 0;
  uint64_t exchanges_total = 0;
};

struct UsageSummary {
  std::string model_fingerprint;
  uint32_t layers = 0, experts = 0;
  std::vector<uint64_t> decode_counts, prefill_counts;  // (layers, experts)
};

// What others may look at without a message.
struct ExchangeStatus {
  std::atomic<bool> attached{false};
  std::atomic<uint32_t> slots{0}, slots_used{0}, in_flight{0};
  std::atomic<uint64_t> exchanges_total{0};
};

class ExchangeActor final : public actor::Actor {
 public:
  // Link, copier and probe outlive the actor.
  ExchangeActor(std::shared_ptr<actor::Executor> executor, ExchangeOptions options, LearnedProfile learned,
                EngineLink& link, ExpertCopier& copier, CacheProbe& probe);

  // Messages from outside.
  struct Start {};
  struct DescribeResidency {
    std::function<void(ResidencySummary)> reply;
  };
  struct DescribeUsage {  // kUnavailable while no gpu-worker is attached
    std::function<void(Result<UsageSummary>)> reply;
  };
  struct SaveProfile {
    std::string path;  // empty: options.learned_path
    bool only_if_changed = false;
    std::function<void(Result<std::string>)> reply;  // where it was written
  };
  void on(Start);
  void on(DescribeResidency message);
  void on(DescribeUsage message);
  void on(SaveProfile message);

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
    uint64_t bytes;
  };
  struct Landed {
    uint64_t attachment;
    std::vector<uint32_t> slots;
    Status status;
  };
  struct LandAgain {
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
  void on(LandAgain message);

  const ExchangeStatus& status() const { return status_; }  // any thread

 private:
  struct InFlight {
    residency::ExpertKey incoming;
    uint64_t bytes = 0;
  };
  enum class Propose { kFillsOnly, kAll };

  std::shared_ptr<ExchangeActor> self() {
    return std::static_pointer_cast<ExchangeActor>(shared_from_this());
  }
  bool is_current(uint64_t attachment) const { return grant_ != nullptr && attachment == attachment_; }
  void propose(Propose what);
  void land_copied();
  void give_up_attachment(const Status& why);
  void read_table();
  residency::SlotView view_of(uint32_t slot) const;
  void drop(uint32_t slot, DropReason reason);
  void publish();
  double seconds_since(actor::Clock::time_point begin) {
    return std::chrono::duration<double>(executor().now() - begin).count();
  }

  ExchangeOptions options_;
  LearnedProfile learned_;
  EngineLink& link_;
  ExpertCopier& copier_;
  CacheProbe& probe_;
  ExchangeStatus status_;

  uint64_t attachment_ = 0;
  std::shared_ptr<Grant> grant_;  // null: not attached
  std::string last_end_;          // why the last attempt ended: said once, not at every try
  UsageReader usage_;
  std::unique_ptr<residency::Policy> policy_;
  std::vector<residency::SlotView> slots_;
  std::map<uint32_t, InFlight> in_flight_;  // by slot
  std::vector<uint32_t> copied_;            // waiting to be landed
  uint32_t copies_running_ = 0;             // over all attachments
  bool retiring_ = false, landing_ = false;
  actor::Clock::time_point retire_sent_, land_sent_;
  uint64_t exchanges_total_ = 0;
};

}  // namespace strata::cache_manager
