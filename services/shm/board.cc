#include "services/shm/board.h"

#include <new>

namespace strata::shm {
namespace {

// The widest model rows that a board is laid out for; far above any known model, small enough that no product
// overflows.
constexpr uint32_t kHiddenMax = 1U << 20;

constexpr uint64_t round_up(uint64_t value) { return (value + kCacheLine - 1) / kCacheLine * kCacheLine; }

}  // namespace

uint64_t BoardHeader::all_progress() const {
  uint64_t all = 0;
  for (const Progress& thread : progress) all += thread.pieces.load(std::memory_order_relaxed);
  return all;
}

Status BoardGeometry::check() const {
  if (hidden == 0 || hidden > kHiddenMax) {
    return fail(Code::kInvalidArgument, "board: hidden is {}, must be 1 to {}", hidden, kHiddenMax);
  }
  if (tokens_max == 0 || tokens_max > kBoardTokensMax) {
    return fail(Code::kInvalidArgument, "board: tokens_max is {}, must be 1 to {}", tokens_max,
                kBoardTokensMax);
  }
  if (pairs_max < tokens_max || pairs_max > tokens_max * kExpertsPerTokenMax) {
    return fail(Code::kInvalidArgument, "board: pairs_max is {}, must be {} to {}", pairs_max, tokens_max,
                tokens_max * kExpertsPerTokenMax);
  }
  return {};
}

// The 8-bit form has 1.25 bytes a value, so float32 is the larger kind.
uint64_t BoardGeometry::activation_row_bytes() const { return round_up(uint64_t{hidden} * sizeof(float)); }
uint64_t BoardGeometry::part_row_bytes() const { return round_up(uint64_t{hidden} * sizeof(float)); }
uint64_t BoardGeometry::pairs_offset() const { return sizeof(SegmentHeader) + sizeof(BoardHeader); }
uint64_t BoardGeometry::activations_offset() const {
  return pairs_offset() + round_up(uint64_t{pairs_max} * sizeof(BoardPair));
}
uint64_t BoardGeometry::parts_offset() const {
  return activations_offset() + tokens_max * activation_row_bytes();
}
uint64_t BoardGeometry::segment_bytes() const { return parts_offset() + pairs_max * part_row_bytes(); }

Result<Board> Board::create(const std::string& name, const BoardGeometry& geometry) {
  TRY_OK(geometry.check());
  Board board;
  TRY(board.segment_,
      Segment::create(name, SegmentKind::kBoard, kBoardLayoutVersion, geometry.segment_bytes()));
  board.geometry_ = geometry;
  auto* header = new (board.segment_.data() + sizeof(SegmentHeader)) BoardHeader;
  header->geometry = geometry;
  return board;
}

Result<Board> Board::attach(const std::string& name, uint64_t bytes, uint64_t instance_id) {
  if (bytes < sizeof(SegmentHeader) + sizeof(BoardHeader)) {
    return fail(Code::kFailedPrecondition, "board {}: {} bytes is too small", name, bytes);
  }
  Board board;
  TRY(board.segment_, Segment::attach(name, SegmentKind::kBoard, kBoardLayoutVersion, bytes, instance_id));
  board.geometry_ = board.header().geometry;
  if (Status status = board.geometry_.check(); !status.ok()) {
    return fail(Code::kFailedPrecondition, "board {}: {}", name, status.message());
  }
  if (board.geometry_.segment_bytes() != bytes) {
    return fail(Code::kFailedPrecondition, "board {}: {} bytes, but its geometry needs {}", name, bytes,
                board.geometry_.segment_bytes());
  }
  return board;
}

BoardHeader& Board::header() const {
  return *std::launder(reinterpret_cast<BoardHeader*>(segment_.data() + sizeof(SegmentHeader)));
}

BoardPair* Board::pairs() const {
  return reinterpret_cast<BoardPair*>(segment_.data() + geometry_.pairs_offset());
}

std::byte* Board::activations(uint32_t row) const {
  return segment_.data() + geometry_.activations_offset() + row * geometry_.activation_row_bytes();
}

float* Board::part(uint32_t pair) const {
  return reinterpret_cast<float*>(segment_.data() + geometry_.parts_offset() +
                                  pair * geometry_.part_row_bytes());
}

}  // namespace strata::shm
