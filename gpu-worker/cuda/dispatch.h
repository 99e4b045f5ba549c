#pragma once
// Splits the routed pairs of a layer by who computes them: hits in the arena, experts that are being copied
// to the device, and misses, which go to the expert workers over their dispatch boards
// (services/shm/board.h). The boards lie in page-locked shared memory: kernels write the requests, ring, and
// await the answers, so that no host thread stands between a layer and its experts.

#include "gpu-worker/cuda/cuda_words.h"
#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/experts.h"
#include "gpu-worker/cuda/weights_ahead.h"
#include "services/base/limits.h"
#include "services/shm/board.h"

namespace strata::gpu_worker::cuda {

// A board as the device sees it.
struct BoardAddresses {
  shm::BoardRequest* request = nullptr;
  shm::BoardPair* pairs = nullptr;
  std::byte* activations = nullptr;
  uint64_t activation_row_bytes = 0;
  float* parts = nullptr;
  uint64_t part_row_floats = 0;
  uint32_t* work_seq = nullptr;           // Doorbell::seq of `work`: only the device rings it
  const uint64_t* done_ticket = nullptr;  // BoardHeader::done_ticket
};

// In device memory, filled at a window boundary. Boards of workers that are attached; with none, the one that
// the host serves.
struct BoardTable {
  uint32_t count = 0;
  BoardAddresses boards[kExpertWorkersMax];
};

// In device memory, kept by the kernels: the last ticket of each board (also the number of rings), the one
// that the layer waits for (0: none), and the last one that was seen answered.
struct BoardTickets {
  uint64_t rung[kExpertWorkersMax];
  uint64_t awaited[kExpertWorkersMax];
  uint64_t answered[kExpertWorkersMax];
};

// Where the experts of the layer are, in device memory, constant within a window.
//   places (experts): an arena slot; kMissing; or, when experts are copied for this window, kStreamed + their
//   number in the layer's order of copying: number n lies in staging slot n % staging_slots and belongs to
//   list 1 + n / batch.
inline constexpr uint32_t kMissing = 0xffffffffu;
inline constexpr uint32_t kStreamed = 0x80000000u;
struct ExpertPlaces {
  const uint32_t* places = nullptr;
  const std::byte* arena = nullptr;
  uint64_t slot_bytes = 0;
  const std::byte* staging = nullptr;  // slots of slot_bytes, too
  uint32_t staging_slots = 0;
  uint32_t batch = 0;
};

// Lists that dispatch() writes: list 0 are the hits, list 1 + b the experts of batch b of copies. List l has
// its counts at counts[l], its groups from groups[l * groups_max] and its pairs from pairs[l * pairs_max].
struct HitLists {
  HitCounts* counts = nullptr;
  HitGroup* groups = nullptr;
  uint32_t* pairs = nullptr;
  uint32_t count = 0;
  uint32_t groups_max = 0;
  uint32_t pairs_max = 0;

  HitList list(uint32_t index) const {
    return {.counts = counts + index,
            .groups = groups + uint64_t{index} * groups_max,
            .pairs = pairs + uint64_t{index} * pairs_max};
  }
};

// Working memory of one call for up to `experts` experts.
struct DispatchScratch {
  uint32_t* counts = nullptr;   // (experts) pairs of each
  uint32_t* cursors = nullptr;  // (experts) where the next pair of each goes
};

struct DispatchArgs {
  const uint16_t* ids = nullptr;  // (rows, top_k)
  uint32_t rows = 0;
  uint32_t top_k = 0;
  uint32_t experts = 0;
  uint32_t layer = 0;
  ExpertPlaces places;
  HitLists lists;
  DispatchScratch scratch;
  // Misses. Only with experts at kMissing, and rows within the boards' tokens_max.
  const BoardTable* boards = nullptr;
  BoardTickets* tickets = nullptr;
  uint32_t* board_pairs = nullptr;  // (kExpertWorkersMax) scratch: pairs on each board
  shm::ActivationKind activations = shm::ActivationKind::kQ8;
  Q8Rows x_q8;  // (rows, hidden), or x
  FloatRows x;
  uint32_t hidden = 0;
  uint64_t* remote = nullptr;  // out (rows * top_k): 0, or the address of the pair's part on a board
};

// One launch for up to kDispatchSmallPairs pairs, five for more. Misses go to board `expert % boards`, in
// ascending order of expert. Activation row r of the window is row r of the board.
inline constexpr uint32_t kDispatchSmallPairs = 256;
void dispatch_experts(const DispatchArgs& args, cudaStream_t stream);

// Waits until every board has answered what dispatch_experts() asked; afterwards the parts can be read. Ends
// early, with parts that mean nothing, when *stop (page-locked host memory) is not 0. Somebody must answer
// for a worker that is lost: the host does (BoardSubstitute), so the wait has no deadline of its own. If a
// board was asked, `ahead` is brought into the second-level cache meanwhile.
struct AwaitArgs {
  const BoardTable* boards = nullptr;
  BoardTickets* tickets = nullptr;
  const uint32_t* stop = nullptr;
  WeightsAhead ahead;
};
void await_boards(const AwaitArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
