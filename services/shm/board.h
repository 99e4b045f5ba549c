#pragma once
// The dispatch board: how the gpu-worker hands the missed experts of one layer to one expert worker, with no
// system call and no allocation on the way (docs/board.md; docs/decisions/050 has why each worker has a board
// of its own).
//
// One segment per attached worker. The gpu-worker fills request, pairs and activations, then rings `work`.
// The worker computes every pair into its row of parts, then stores the request's ticket in `done_ticket` and
// rings `done`. One request is in flight at a time. A worker that is taken for lost is killed first, then its
// segment is retired: it can never write into a later window.
//
//   SegmentHeader | BoardHeader | pairs (pairs_max) | activations (tokens_max rows) | parts (pairs_max rows
//   of hidden float32)
//
// Row p of parts belongs to pair p of the request.

#include <atomic>
#include <cstdint>

#include "services/base/status.h"
#include "services/shm/doorbell.h"
#include "services/shm/segment.h"

namespace strata::shm {

inline constexpr uint32_t kBoardLayoutVersion = 3;

// In ascending order of expert, so that whoever computes them finds all tokens of one expert side by side.
struct BoardPair {
  uint16_t token = 0;   // row of activations
  uint16_t expert = 0;  // of the request's layer
};

enum class ActivationKind : uint32_t {
  kQ8 = 0,   // q8_row_bytes(hidden) per row: q | d | sum (services/quant/matrix.h)
  kF32 = 1,  // hidden float32 per row
};

struct BoardGeometry {
  uint32_t hidden = 0;
  uint32_t tokens_max = 0;
  uint32_t pairs_max = 0;  // tokens_max * top_k

  bool operator==(const BoardGeometry&) const = default;
  // kInvalidArgument: a number is 0 or beyond limits.h.
  Status check() const;
  uint64_t activation_row_bytes() const;  // room for the larger kind, a multiple of 64
  uint64_t part_row_bytes() const;        // likewise
  uint64_t pairs_offset() const;          // from the segment's begin
  uint64_t activations_offset() const;
  uint64_t parts_offset() const;
  uint64_t segment_bytes() const;
};

struct BoardRequest {   // written by the gpu-worker before it rings
  uint64_t ticket = 0;  // 1, 2, 3, ...
  uint32_t layer = 0;
  uint32_t tokens = 0;
  uint32_t pair_count = 0;
  ActivationKind activations = ActivationKind::kQ8;
  uint32_t numerics = 0;  // quant::Numerics
};

struct alignas(kCacheLine) BoardHeader {
  BoardGeometry geometry;  // constant after creation

  alignas(kCacheLine) BoardRequest request;
  Doorbell work;  // gpu-worker -> worker
  // Not 0 while a window runs whose layers may ring at any moment: then the worker does not sleep. Set by the
  // gpu-worker, which wakes the worker first.
  alignas(kCacheLine) std::atomic<uint32_t> window_open{0};

  Doorbell done;  // worker -> gpu-worker
  // Last request that is complete (release: its parts are visible).
  alignas(kCacheLine) std::atomic<uint64_t> done_ticket{0};

  // Grow with every piece of work that is finished: a worker where none moves is lost. Threads write with
  // every piece, so each has a line of its own, as far as there are lines.
  static constexpr uint32_t kProgressLines = 64;
  struct alignas(kCacheLine) Progress {
    std::atomic<uint64_t> pieces{0};
  };
  Progress progress[kProgressLines];
  std::atomic<uint64_t>& progress_of(uint32_t thread) { return progress[thread % kProgressLines].pieces; }
  uint64_t all_progress() const;  // relaxed: only whether it moves is of interest
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "a lock would live in one process only");

// A board in a segment, from either side.
class Board {
 public:
  static Result<Board> create(const std::string& name, const BoardGeometry& geometry);
  static Result<Board> attach(const std::string& name, uint64_t bytes,
                              uint64_t instance_id);  // checks the geometry against the size

  BoardHeader& header() const;
  const BoardGeometry& geometry() const { return geometry_; }
  BoardPair* pairs() const;
  std::byte* activations(uint32_t row) const;
  float* part(uint32_t pair) const;
  Segment& segment() { return segment_; }
  const Segment& segment() const { return segment_; }

 private:
  Segment segment_;
  BoardGeometry geometry_;  // as checked; the other side cannot change it any more
};

}  // namespace strata::shm
