#pragma once
// Splits the routed experts of a layer: hits are computed from the arena on the host device's own threads,
// misses by the attached expert workers over their boards, at the same time; what a lost worker leaves behind
// is computed here from the mapped file, with the same bits. Used by the window loop only.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "gpu-worker/expert_workers.h"
#include "gpu-worker/resident_experts.h"
#include "services/model/moe_executor.h"
#include "services/model/parallel.h"
#include "services/shm/usage_board.h"

namespace strata::gpu_worker {

// Counted by the window loop, read by the probe: only ever grow.
struct DispatchCounters {
  std::atomic<uint64_t> hits{0};       // pairs served from the arena
  std::atomic<uint64_t> misses{0};     // pairs served by the CPU (workers or fallback)
  std::atomic<uint64_t> copies{0};     // pairs whose expert was copied to the device for the window
  std::atomic<uint64_t> fallbacks{0};  // of those, computed here because no worker could
  std::atomic<uint64_t> wait_us{0};    // time after that until every missed part was there
};

struct ExpertDispatchOptions {
  const model::ModelWeights* weights = nullptr;
  quant::Numerics numerics = quant::Numerics::kReproducible;
  const ResidentExperts* residents = nullptr;
  ExpertWorkers* workers = nullptr;
  shm::UsageBoard* usage = nullptr;  // may be null
  model::Parallel* parallel = nullptr;
  uint32_t tokens_max = 0;  // rows of a window
};

class ExpertDispatch final : public model::MoeExecutor {
 public:
  explicit ExpertDispatch(const ExpertDispatchOptions& options);
  ~ExpertDispatch() override;
  // Memory of the buffers for windows of `rows` rows computed by `threads` threads of this process.
  static uint64_t bytes_needed(const model::ModelWeights& weights, uint32_t rows, uint32_t threads);

  // Before each Forward::run: which rows are prompt tokens (they are counted apart on the usage board). This
  // is the window boundary at which workers come and go.
  void begin_window(std::span<const uint8_t> row_is_prompt);
  // After each Forward::run, also one that failed before the last layer: the workers may sleep. (The last
  // layer's finish() says it earlier.)
  void end_window();
  void begin(const model::RoutedLayer& routed) override;
  std::span<const float* const> finish() override;
  const DispatchCounters& counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::gpu_worker
