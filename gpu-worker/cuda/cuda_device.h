#pragma once
// The `cuda` device: the whole window on one GPU, hits from the arena in its memory, misses by the expert
// workers over boards that the GPU writes itself. Prompt and generated tokens give the bits of the host
// device (with float32 keys and values), but for prompts under numerics: fast.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpu-worker/cuda/vram_plan.h"
#include "gpu-worker/device.h"
#include "gpu-worker/expert_workers.h"
#include "gpu-worker/resident_table.h"
#include "services/model/routing_override.h"

namespace strata::gpu_worker::cuda {

struct CudaDeviceOptions {
  const model::ModelWeights* weights = nullptr;  // outlives the device
  VramPlan plan;
  uint32_t threads = 1;              // host threads for table rows, and for experts whose worker was lost
  std::string run_id;                // for segment names
  ExpertWorkers* workers = nullptr;  // outlives the device
  model::RoutingOverride* routing = nullptr;  // outlives the device; null: the router chooses
  shm::WaitPolicy wait = {.yield = true};     // how the window loop waits for the device
  std::vector<uint32_t> other_cpus = {};      // for threads that mostly sleep; empty: anywhere
  // Windows of up to so many rows become graphs, at most so many at a time.
  uint32_t graph_rows_max = 32;
  uint32_t graphs_max = 24;
};

// Chooses the GPU (the first that is visible) and asks for its memory. kUnavailable: no GPU, or no driver,
// with CUDA's reason.
Result<VramInput> open_gpu();

class CudaDevice final : public Device {
 public:
  // Takes all memory of the plan. kResourceExhausted: the memory is not there any more.
  static Result<std::unique_ptr<CudaDevice>> create(const CudaDeviceOptions& options);
  ~CudaDevice() override;

  std::string_view type() const override { return "cuda"; }
  Result<SequenceId> open_sequence() override;
  void close_sequence(SequenceId id) override;
  Status run_window(std::span<const DeviceRow> rows, std::vector<RowChoice>& choices) override;
  uint32_t prompt_multiple() const override;
  bool captures_within_windows() const override { return true; }
  std::span<const uint16_t> routed() const override;
  void capture(SequenceId from, uint32_t slot) override;
  void restore(SequenceId to, uint32_t slot, uint32_t tokens) override;
  void copy_pages(SequenceId from, SequenceId to, uint32_t tokens) override;
  Status read_slot(uint32_t slot, std::span<std::byte> to) override;
  Status write_slot(uint32_t slot, std::span<const std::byte> from) override;
  Status read_page(SequenceId from, uint32_t page, uint32_t tokens, std::span<std::byte> to) override;
  Status write_page(SequenceId to, uint32_t page, uint32_t tokens, std::span<const std::byte> from) override;
  const StateLayout& state_layout() const override;
  uint32_t checkpoint_slots() const override;
  StageSeconds take_stages() override;
  ArenaHandle arena() const override;
  ResidentTable& residents() override;
  const shm::UsageBoard& usage() const override;
  const DispatchCounters& dispatch_counters() const override;
  std::string activity() const override;

 private:
  struct Impl;
  explicit CudaDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::gpu_worker::cuda
