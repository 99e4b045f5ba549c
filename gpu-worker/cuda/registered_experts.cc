#include "gpu-worker/cuda/registered_experts.h"

#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "gpu-worker/cuda/runtime.h"
#include "services/obs/log.h"
#include "services/sys/cpus.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint64_t kPage = 4096;
// Of the memory that is available (page cache counts as such), in percent: the rest is for everybody else.
constexpr uint64_t kAvailablePercent = 75;
constexpr std::size_t kReadAtOnce = std::size_t{16} << 20;

std::span<const std::byte> all_of(const model::Matrix& matrix, uint32_t count, std::size_t expert_bytes) {
  // Not count * expert_bytes: gate and up may lie in each other's gaps, and the last one ends with its own
  // rows.
  return {matrix.data, (count - 1) * expert_bytes + std::size_t{matrix.rows} * matrix.row_bytes};
}

}  // namespace

std::vector<std::span<const std::byte>> page_ranges(std::vector<std::span<const std::byte>> pieces) {
  std::ranges::sort(pieces, {}, [](const auto& piece) { return piece.data(); });
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  for (const auto& piece : pieces) {
    if (piece.empty()) continue;
    const auto address = reinterpret_cast<uintptr_t>(piece.data());
    const uintptr_t begin = address / kPage * kPage,
                    end = (address + piece.size() + kPage - 1) / kPage * kPage;
    if (!ranges.empty() && begin <= ranges.back().second) {
      ranges.back().second = std::max(ranges.back().second, end);
    } else {
      ranges.emplace_back(begin, end);
    }
  }
  std::vector<std::span<const std::byte>> spans;
  for (const auto& [begin, end] : ranges)
    spans.emplace_back(reinterpret_cast<const std::byte*>(begin), end - begin);
  return spans;
}

RegisteredExperts::RegisteredExperts(const model::ModelWeights& weights)
    : thread_([this, &weights] { run(weights); }) {}

RegisteredExperts::~RegisteredExperts() {
  stopping_.store(true, std::memory_order_relaxed);
  thread_.join();
  for (std::byte* range : ranges_) cudaHostUnregister(range);
}

// Locking holds a lock of the driver, which launches need too: what comes from a disk is read before. Pieces,
// so that a stop need not wait for all of it. A kernel that does not know the advice leaves it to the
// locking.
void RegisteredExperts::read_in(std::span<const std::byte> range) const {
  for (std::size_t at = 0; at < range.size(); at += kReadAtOnce) {
    if (stopping_.load(std::memory_order_relaxed)) return;
    auto* piece = const_cast<std::byte*>(range.data() + at);
    if (madvise(piece, std::min(kReadAtOnce, range.size() - at), MADV_POPULATE_READ) != 0) return;
  }
}

void RegisteredExperts::run(const model::ModelWeights& weights) {
  sys::name_this_thread("page-lock");
  std::vector<std::span<const std::byte>> pieces;
  for (const model::LayerWeights& layer : weights.layers) {
    const model::LayerExperts& experts = layer.moe.experts;
    pieces.push_back(all_of(experts.gate, experts.count, experts.gate_expert_bytes));
    pieces.push_back(all_of(experts.up, experts.count, experts.up_expert_bytes));
    pieces.push_back(all_of(experts.down, experts.count, experts.down_expert_bytes));
  }
  const auto ranges = page_ranges(std::move(pieces));
  uint64_t wanted = 0, locked = 0;
  for (const auto& range : ranges) wanted += range.size();
  const uint64_t available = sys::available_memory_bytes();
  std::string refusal;
  const bool too_many = wanted > available / 100 * kAvailablePercent;
  if (too_many)
    refusal = fmt::format("{} MiB of experts, {} MiB of memory available", wanted >> 20, available >> 20);
  for (const auto& range : ranges) {
    if (too_many) break;
    read_in(range);
    if (stopping_.load(std::memory_order_relaxed)) break;
    const auto begin = std::chrono::steady_clock::now();
    // CUDA's interface takes a plain pointer; with this flag it only reads.
    auto* base = const_cast<std::byte*>(range.data());
    const cudaError_t error = cudaHostRegister(
        base, range.size(), cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterReadOnly);
    if (error != cudaSuccess) {
      cudaGetLastError();  // taken note of here
      refusal = cuda_status(error, fmt::format("locking {} MiB", range.size() >> 20)).message();
      continue;
    }
    ranges_.push_back(base);
    locked += range.size();
    // The driver's lock is not fair: without a pause, windows that begin meanwhile would launch nothing
    // before the last range.
    std::this_thread::sleep_for(std::chrono::steady_clock::now() - begin);
  }
  if (stopping_.load(std::memory_order_relaxed)) return;
  if (!refusal.empty()) {
    obs::warn("device", "{} of {} MiB of experts are locked in memory, long prompts are read more slowly: {}",
              locked >> 20, wanted >> 20, refusal);
  } else {
    obs::info("device", "{} MiB of experts are locked in memory", locked >> 20);
  }
}

}  // namespace strata::gpu_worker::cuda
