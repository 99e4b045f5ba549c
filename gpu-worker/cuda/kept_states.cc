#include "gpu-worker/cuda/kept_states.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu-worker/cuda/runtime.h"
#include "gpu-worker/state_copies.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

// Copies on a stream, of which the first that fails is remembered.
class Copies {
 public:
  explicit Copies(cudaStream_t stream) : stream_(stream) {}
  void operator()(std::byte* to, const std::byte* from, uint64_t bytes) {
    if (error_ == cudaSuccess) error_ = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_);
  }
  Status finish() {
    if (error_ == cudaSuccess) error_ = cudaStreamSynchronize(stream_);
    return cuda_status(error_, "copying a state");
  }

 private:
  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace

Result<KeptStates> KeptStates::create(StateLayout layout, std::byte* slots, uint32_t slot_count,
                                      cudaStream_t stream) {
  KeptStates states;
  states.layout_ = std::move(layout);
  states.slots_ = slots;
  states.slot_count_ = slot_count;
  states.windows_ = stream;
  TRY_CUDA(cudaStreamCreateWithFlags(&states.beside_, cudaStreamNonBlocking));
  for (cudaEvent_t& event : states.copied_)
    TRY_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  TRY(states.staging_, PinnedBuffer<std::byte>::create(kStagingHalves * staging_half_bytes(states.layout_)));
  TRY(states.pieces_, PinnedBuffer<StatePiece>::create(states.layout_.arrays().size()));
  return states;
}

KeptStates::KeptStates(KeptStates&& other) noexcept { *this = std::move(other); }

KeptStates& KeptStates::operator=(KeptStates&& other) noexcept {
  layout_ = std::move(other.layout_);
  slots_ = other.slots_;
  slot_count_ = other.slot_count_;
  windows_ = other.windows_;
  std::swap(beside_, other.beside_);
  std::swap(copied_, other.copied_);
  staging_ = std::move(other.staging_);
  pieces_ = std::move(other.pieces_);
  staging_is_zero_ = other.staging_is_zero_;
  return *this;
}

KeptStates::~KeptStates() {
  if (beside_ != nullptr) cudaStreamDestroy(beside_);
  for (cudaEvent_t event : copied_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

std::span<std::byte> KeptStates::half(uint32_t index) const {
  const uint64_t bytes = staging_half_bytes(layout_);
  return staging_.span().subspan(index % kStagingHalves * bytes, bytes);
}

std::byte* KeptStates::slot_at(uint32_t slot) const {
  CHECK(slot < slot_count_, "checkpoint slot {}", slot);
  return slots_ + slot * layout_.fixed_bytes();
}

Status KeptStates::capture(std::span<std::byte* const> arrays, uint32_t slot) {
  Copies copies(windows_);
  copy_state(layout_.fixed_pieces(), arrays, slot_at(slot), StateDirection::kToBlob, copies);
  return copies.finish();
}

Status KeptStates::restore(std::span<std::byte* const> arrays, uint32_t slot) {
  Copies copies(windows_);
  copy_state(layout_.fixed_pieces(), arrays, slot_at(slot), StateDirection::kFromBlob, copies);
  return copies.finish();
}

Status KeptStates::copy_pages(std::span<std::byte* const> from, std::span<std::byte* const> to,
                              uint32_t tokens) {
  // An array's pages follow each other in both sequences.
  std::vector<StateLayout::Piece> runs;
  for (uint32_t page = 0; page < state_pages(tokens); ++page) {
    for (const StateLayout::Piece& piece : layout_.page_pieces(page, tokens)) {
      const auto run = std::ranges::find(runs, piece.array, &StateLayout::Piece::array);
      if (run == runs.end()) {
        runs.push_back(piece);
      } else {
        run->bytes += piece.bytes;
      }
    }
  }
  Copies copies(windows_);
  for (const StateLayout::Piece& run : runs)
    copies(to[run.array] + run.at, from[run.array] + run.at, run.bytes);
  return copies.finish();
}

Status KeptStates::read_slot(uint32_t slot, std::span<std::byte> to) {
  CHECK(to.size() == layout_.fixed_bytes(), "{} bytes for a fixed part of {}", to.size(),
        layout_.fixed_bytes());
  staging_is_zero_ = false;
  const std::byte* from = slot_at(slot);
  const uint64_t step = half(0).size(), count = (to.size() + step - 1) / step;
  const auto piece = [&](uint64_t index) {
    return to.subspan(index * step, std::min(step, to.size() - index * step));
  };
  // The bus is one piece ahead.
  for (uint64_t index = 0; index <= count; ++index) {
    const auto now = static_cast<uint32_t>(index), before = now + 1;  // of two halves
    if (index < count) {
      TRY_CUDA(cudaMemcpyAsync(half(now).data(), from + index * step, piece(index).size(),
                               cudaMemcpyDeviceToHost, beside_));
      TRY_CUDA(cudaEventRecord(copied_[now % kStagingHalves], beside_));
    }
    if (index == 0) continue;
    TRY_CUDA(cudaEventSynchronize(copied_[before % kStagingHalves]));
    std::memcpy(piece(index - 1).data(), half(before).data(), piece(index - 1).size());
  }
  return {};
}

Status KeptStates::write_slot(uint32_t slot, std::span<const std::byte> from) {
  CHECK(from.size() == layout_.fixed_bytes(), "{} bytes for a fixed part of {}", from.size(),
        layout_.fixed_bytes());
  staging_is_zero_ = false;
  std::byte* to = slot_at(slot);
  const uint64_t step = half(0).size();
  for (uint64_t at = 0, index = 0; at < from.size(); at += step, ++index) {
    const auto now = static_cast<uint32_t>(index);
    const uint64_t bytes = std::min(step, from.size() - at);
    // One that nothing was ever recorded in is over.
    TRY_CUDA(cudaEventSynchronize(copied_[now % kStagingHalves]));
    std::memcpy(half(now).data(), from.data() + at, bytes);
    TRY_CUDA(cudaMemcpyAsync(to + at, half(now).data(), bytes, cudaMemcpyHostToDevice, beside_));
    TRY_CUDA(cudaEventRecord(copied_[now % kStagingHalves], beside_));
  }
  return cuda_status(cudaStreamSynchronize(beside_), "copying a state");
}

Status KeptStates::move_page(std::span<std::byte* const> arrays, uint32_t page, uint32_t tokens,
                             StateDirection direction) {
  uint32_t count = 0;
  for (const StateLayout::Piece& piece : layout_.page_pieces(page, tokens)) {
    pieces_.span()[count++] = {
        .array = arrays[piece.array] + piece.at, .offset = piece.offset, .bytes = piece.bytes};
  }
  move_pieces({.pieces = pieces_.data(), .count = count, .blob = half(0).data(), .direction = direction},
              beside_);
  TRY_CUDA(cudaGetLastError());
  return cuda_status(cudaStreamSynchronize(beside_), "copying a state");
}

Status KeptStates::read_page(std::span<std::byte* const> arrays, uint32_t page, uint32_t tokens,
                             std::span<std::byte> to) {
  CHECK(to.size() == layout_.page_bytes(), "{} bytes for a page of {}", to.size(), layout_.page_bytes());
  const bool full = tokens / kStatePageTokens > page;
  if (!full || !staging_is_zero_) std::ranges::fill(half(0), std::byte{0});
  staging_is_zero_ = full;
  TRY_OK(move_page(arrays, page, tokens, StateDirection::kToBlob));
  std::memcpy(to.data(), half(0).data(), to.size());
  return {};
}

Status KeptStates::write_page(std::span<std::byte* const> arrays, uint32_t page, uint32_t tokens,
                              std::span<const std::byte> from) {
  CHECK(from.size() == layout_.page_bytes(), "{} bytes for a page of {}", from.size(), layout_.page_bytes());
  staging_is_zero_ = false;
  std::memcpy(half(0).data(), from.data(), from.size());
  return move_page(arrays, page, tokens, StateDirection::kFromBlob);
}

}  // namespace strata::gpu_worker::cuda
