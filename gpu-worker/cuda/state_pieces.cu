#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/state_pieces.h"

namespace strata::gpu_worker::cuda {
namespace {

// 48 layers' keys and values of a page, a block each: some 200 KiB under way, which is more than a bus holds.
constexpr uint32_t kThreads = 256;

template <class Unit>
__device__ void move(std::byte* to, const std::byte* from, uint64_t bytes) {
  auto* target = reinterpret_cast<Unit*>(to);
  const auto* source = reinterpret_cast<const Unit*>(from);
  for (uint64_t i = threadIdx.x; i < bytes / sizeof(Unit); i += kThreads) target[i] = source[i];
}

// Block (pieces).
__global__ void __launch_bounds__(kThreads) pieces_kernel(StatePiecesArgs args) {
  const StatePiece piece = args.pieces[blockIdx.x];
  std::byte* in_blob = args.blob + piece.offset;
  const bool to_blob = args.direction == StateDirection::kToBlob;
  std::byte* to = to_blob ? in_blob : piece.array;
  const std::byte* from = to_blob ? piece.array : in_blob;
  const uint64_t ends = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from) | piece.bytes;
  if (ends % sizeof(uint4) == 0) {
    move<uint4>(to, from, piece.bytes);
  } else {
    move<std::byte>(to, from, piece.bytes);
  }
}

}  // namespace

void move_pieces(const StatePiecesArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  launch(pieces_kernel, {.grid = args.count, .block = kThreads}, stream, args);
}

}  // namespace strata::gpu_worker::cuda
