#include "gpu-worker/cuda/kept_states.h"

#include <algorithm>
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
  return states;
}

KeptStates::KeptStates(KeptStates&& other) noexcept { *this = std::move(other); }

KeptStates& KeptStates::operator=(KeptStates&& other) noexcept {
  layout_ = std::move(other.layout_);
  slots_ = other.slots_;
  slot_count_ = other.slot_count_;
  windows_ = other.windows_;
  std::swap(beside_, other.beside_);
  return *this;
}

KeptStates::~KeptStates() {
  if (beside_ != nullptr) cudaStreamDestroy(beside_);
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
  Copies copies(beside_);
  copies(to.data(), slot_at(slot), to.size());
  return copies.finish();
}

Status KeptStates::write_slot(uint32_t slot, std::span<const std::byte> from) {
  CHECK(from.size() == layout_.fixed_bytes(), "{} bytes for a fixed part of {}", from.size(),
        layout_.fixed_bytes());
  Copies copies(beside_);
  copies(slot_at(slot), from.data(), from.size());
  return copies.finish();
}

Status KeptStates::read_page(std::span<std::byte* const> arrays, uint32_t page, uint32_t tokens,
                             std::span<std::byte> to) {
  CHECK(to.size() == layout_.page_bytes(), "{} bytes for a page of {}", to.size(), layout_.page_bytes());
  std::ranges::fill(to, std::byte{0});
  Copies copies(beside_);
  copy_state(layout_.page_pieces(page, tokens), arrays, to.data(), StateDirection::kToBlob, copies);
  return copies.finish();
}

Status KeptStates::write_page(std::span<std::byte* const> arrays, uint32_t page, uint32_t tokens,
                              std::span<const std::byte> from) {
  CHECK(from.size() == layout_.page_bytes(), "{} bytes for a page of {}", from.size(), layout_.page_bytes());
  Copies copies(beside_);
  // Only read from in this direction.
  copy_state(layout_.page_pieces(page, tokens), arrays, const_cast<std::byte*>(from.data()),
             StateDirection::kFromBlob, copies);
  return copies.finish();
}

}  // namespace strata::gpu_worker::cuda
