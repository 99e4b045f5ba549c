#pragma once
// The `host` device: the model's reference forward pass on CPU threads, the arena in shared memory. All
// memory of the plan is taken in create(). Prompt and generated tokens take the same path here, so that they
// agree to the bit.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gpu-worker/device.h"
#include "gpu-worker/expert_dispatch.h"
#include "gpu-worker/expert_workers.h"
#include "gpu-worker/plan.h"
#include "gpu-worker/resident_table.h"
#include "services/model/forward.h"
#include "services/model/model_weights.h"

namespace strata::gpu_worker {

struct HostDeviceOptions {
  const model::ModelWeights* weights = nullptr;  // outlives the device
  MemoryPlan plan;
  quant::Numerics numerics = quant::Numerics::kReproducible;
  uint32_t threads = 1;
  std::string run_id;                         // for segment names
  ExpertWorkers* workers = nullptr;           // outlives the device
  model::RoutingOverride* routing = nullptr;  // outlives the device; null: the router chooses
  bool verify_records = false;                // ResidentTableOptions::checksum
};

class HostDevice final : public Device {
 public:
  // kResourceExhausted: shared memory is short.
  static Result<std::unique_ptr<HostDevice>> create(const HostDeviceOptions& options);
  ~HostDevice() override;

  std::string_view type() const override { return "host"; }
  Result<SequenceId> open_sequence() override;
  void close_sequence(SequenceId id) override;
  Status run_window(std::span<const DeviceRow> rows, std::vector<RowChoice>& choices) override;
  bool captures_within_windows() const override { return true; }
  std::span<const uint16_t> routed() const override;
  void capture(SequenceId from, uint32_t slot) override;
  void restore(SequenceId to, uint32_t slot, uint32_t tokens) override;
  void copy_pages(SequenceId from, SequenceId to, uint32_t tokens) override;
  Status read_slot(uint32_t slot, std::span<std::byte> to) override;
  Status write_slot(uint32_t slot, std::span<const std::byte> from) override;
  Status read_page(SequenceId from, uint32_t page, uint32_t tokens, std::span<std::byte> to) override;
  Status write_page(SequenceId to, uint32_t page, uint32_t tokens, std::span<const std::byte> from) override;
  const StateLayout& state_layout() const override { return layout_; }
  uint32_t checkpoint_slots() const override { return options_.plan.checkpoint_slots; }
  StageSeconds take_stages() override;
  ArenaHandle arena() const override;
  ResidentTable& residents() override { return residents_; }
  const shm::UsageBoard& usage() const override { return usage_; }
  std::string activity() const override;

  const DispatchCounters& dispatch_counters() const override { return dispatch_.counters(); }

 private:
  class TracedExperts;
  struct Pooled {
    std::unique_ptr<model::SequenceState> state;
    std::vector<std::byte*> arrays;  // of the state, as the layout numbers them
    uint32_t generation = 0;
    bool open = false;
  };

  HostDevice(const HostDeviceOptions& options, shm::Segment arena, shm::ResidencyTable table,
             shm::UsageBoard usage);
  Pooled& pooled(SequenceId id);
  std::span<std::byte> slot(uint32_t index);
  void choose(std::span<const DeviceRow> rows, std::vector<RowChoice>& choices);

  HostDeviceOptions options_;
  shm::Segment arena_;
  shm::UsageBoard usage_;
  ResidentTable residents_;
  model::Parallel parallel_;
  ExpertDispatch dispatch_;
  std::unique_ptr<TracedExperts> experts_;
  model::Forward forward_;
  model::Sampler sampler_;
  std::vector<Pooled> pool_;
  StateLayout layout_;
  std::vector<std::byte> slots_;                // (checkpoint slots, fixed part)
  std::vector<model::FixedState> slot_states_;  // the same memory

  // One window; memory is kept.
  std::vector<model::WindowRow> rows_;
  std::vector<uint8_t> row_is_prompt_;
  std::vector<float> logits_;  // (sequences, V)

  double commit_seconds_ = 0;
  uint64_t wait_us_taken_ = 0;
};

}  // namespace strata::gpu_worker
