#include "gpu-worker/cuda/registered_experts.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <utility>

#include "gpu-worker/cuda/runtime.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint64_t kPage = 4096;
// Dense weights lie between the experts of neighbouring layers; the n-gram table, which must stay on the
// disk, is much larger.
constexpr uint64_t kGap = uint64_t{256} << 20;

}  // namespace

std::vector<std::span<const std::byte>> page_ranges(std::vector<std::span<const std::byte>> pieces,
                                                    uint64_t gap) {
  std::ranges::sort(pieces, {}, [](const auto& piece) { return piece.data(); });
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  for (const auto& piece : pieces) {
    if (piece.empty()) continue;
    const auto address = reinterpret_cast<uintptr_t>(piece.data());
    const uintptr_t begin = address / kPage * kPage,
                    end = (address + piece.size() + kPage - 1) / kPage * kPage;
    if (!ranges.empty() && begin <= ranges.back().second + gap) {
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

RegisteredExperts::RegisteredExperts(const model::ModelWeights& weights) {
  std::vector<std::span<const std::byte>> pieces;
  for (const model::LayerWeights& layer : weights.layers) {
    const model::LayerExperts& experts = layer.moe.experts;
    pieces.emplace_back(experts.gate.data, experts.count * experts.gate_expert_bytes);
    pieces.emplace_back(experts.up.data, experts.count * experts.up_expert_bytes);
    pieces.emplace_back(experts.down.data, experts.count * experts.down_expert_bytes);
  }
  for (const auto& range : page_ranges(std::move(pieces), kGap)) {
    // CUDA's interface takes a plain pointer; with this flag it only reads.
    auto* base = const_cast<std::byte*>(range.data());
    const cudaError_t error = cudaHostRegister(
        base, range.size(), cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterReadOnly);
    if (error != cudaSuccess) {
      cudaGetLastError();  // taken note of here
      refusal_ = cuda_status(error, fmt::format("locking {} MiB", range.size() >> 20)).message();
      return;
    }
    ranges_.push_back(base);
    bytes_ += range.size();
  }
}

RegisteredExperts& RegisteredExperts::operator=(RegisteredExperts&& other) noexcept {
  std::swap(ranges_, other.ranges_);
  std::swap(bytes_, other.bytes_);
  std::swap(refusal_, other.refusal_);
  return *this;
}

RegisteredExperts::~RegisteredExperts() {
  for (std::byte* range : ranges_) cudaHostUnregister(range);
}

}  // namespace strata::gpu_worker::cuda
