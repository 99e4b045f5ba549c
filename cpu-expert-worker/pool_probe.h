#pragma once
// The metrics of an expert worker's threads (spec: metrics), carried over from the pool's counters by a
// timer.

#include <memory>

#include "cpu-expert-worker/pool_counters.h"
#include "services/actor/actor.h"
#include "services/obs/counter_followers.h"
#include "services/obs/metrics.h"

namespace strata::cpu_expert_worker {

class PoolProbe final : public actor::Actor {
 public:
  struct Update {};

  // The counters outlive the probe.
  PoolProbe(std::shared_ptr<actor::Executor> executor, obs::Metrics& metrics, const PoolCounters& counters);

  // Carries the counters over, and again after a while.
  void on(Update);

 private:
  obs::CounterFollowers followers_;
};

}  // namespace strata::cpu_expert_worker
