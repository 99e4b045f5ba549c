#pragma once
// The gpu-worker's metrics (spec: metrics). Everything comes from counters that the window loop keeps in
// atomics; a timer carries them over, so that a scrape never touches the loop.

#include <chrono>
#include <memory>
#include <vector>

#include "gpu-worker/expert_dispatch.h"
#include "gpu-worker/loop_counters.h"
#include "gpu-worker/parking/state_feed.h"
#include "gpu-worker/plan.h"
#include "gpu-worker/resident_table.h"
#include "gpu-worker/state_layout.h"
#include "services/actor/actor.h"
#include "services/obs/counter_followers.h"
#include "services/obs/metrics.h"
#include "services/shm/usage_board.h"

namespace strata::gpu_worker {

struct EngineProbeSources {  // all outlive the probe
  const LoopCounters* loop = nullptr;
  const DispatchCounters* dispatch = nullptr;
  const ResidentTable* residents = nullptr;
  const shm::UsageBoard* usage = nullptr;
  const StateFeed* states = nullptr;
  const StateLayout* state_layout = nullptr;
};

// Seconds from asking the store for a parked state until the device has it; a load from disk comes on top
// (cache manager).
prometheus::Histogram& restore_seconds(obs::Metrics& metrics);

class EngineProbe final : public actor::Actor {
 public:
  struct Update {};

  EngineProbe(std::shared_ptr<actor::Executor> executor, obs::Metrics& metrics, const MemoryPlan& plan,
              double load_seconds, EngineProbeSources sources);

  // Carries the counters over, and again after a while.
  void on(Update);

 private:
  void follow_layers(obs::Metrics& metrics);
  void carry_chunks();
  void carry_states();

  EngineProbeSources sources_;
  obs::CounterFollowers followers_;
  prometheus::Histogram& chunk_tokens_;
  std::vector<uint64_t> chunk_buckets_seen_;
  uint64_t chunk_tokens_seen_ = 0;
  prometheus::Gauge& slots_used_;
  prometheus::Gauge& residency_epoch_;
  prometheus::Gauge& kept_bytes_;
};

}  // namespace strata::gpu_worker
