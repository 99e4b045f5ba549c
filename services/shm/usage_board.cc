#include "services/shm/usage_board.h"

#include <new>

#include "services/base/check.h"

namespace strata::shm {
namespace {

using Counter = std::atomic<uint64_t>;
constexpr uint64_t kLayersOffset = sizeof(SegmentHeader) + sizeof(UsageHeader);

constexpr uint64_t counters_offset(uint32_t layers) {
  return kLayersOffset + uint64_t{layers} * sizeof(LayerUses);
}

Status check_shape(uint32_t layers, uint32_t experts) {
  if (layers == 0 || layers > kLayersMax || experts == 0 || experts > kExpertsMax) {
    return fail(Code::kInvalidArgument, "usage board: {} layers of {} experts, must be 1 to {} of 1 to {}",
                layers, experts, kLayersMax, kExpertsMax);
  }
  return {};
}

LayerUses* layer_uses(const Segment& segment) {
  return reinterpret_cast<LayerUses*>(segment.data() + kLayersOffset);
}

Counter* counters(const Segment& segment, uint32_t layers) {
  return reinterpret_cast<Counter*>(segment.data() + counters_offset(layers));
}

}  // namespace

uint64_t UsageBoard::bytes_needed(uint32_t layers, uint32_t experts) {
  return counters_offset(layers) + 2 * uint64_t{layers} * experts * sizeof(Counter);
}

Result<UsageBoard> UsageBoard::create(const std::string& name, uint32_t layers, uint32_t experts) {
  TRY_OK(check_shape(layers, experts));
  UsageBoard board;
  TRY(board.segment_,
      Segment::create(name, SegmentKind::kUsageBoard, kUsageLayoutVersion, bytes_needed(layers, experts)));
  new (board.segment_.data() + sizeof(SegmentHeader))
      UsageHeader{.layers = layers, .experts = experts, .window_counted = {}};
  // A new segment is all zeros, which is what a counter begins with; placing the objects makes that formal.
  for (uint32_t i = 0; i < layers; ++i) new (layer_uses(board.segment_) + i) LayerUses();
  for (uint64_t i = 0; i < 2 * uint64_t{layers} * experts; ++i)
    new (counters(board.segment_, layers) + i) Counter(0);
  return board;
}

Result<UsageBoard> UsageBoard::attach(const std::string& name, uint64_t bytes, uint64_t instance_id) {
  if (bytes < kLayersOffset)
    return fail(Code::kFailedPrecondition, "usage board {}: {} bytes is too small", name, bytes);
  UsageBoard board;
  TRY(board.segment_,
      Segment::attach(name, SegmentKind::kUsageBoard, kUsageLayoutVersion, bytes, instance_id));
  const UsageHeader& header = board.header();
  if (!check_shape(header.layers, header.experts).ok() ||
      bytes_needed(header.layers, header.experts) != bytes) {
    return fail(Code::kFailedPrecondition, "usage board {}: {} layers of {} experts do not fit {} bytes",
                name, header.layers, header.experts, bytes);
  }
  return board;
}

UsageHeader& UsageBoard::header() const {
  return *std::launder(reinterpret_cast<UsageHeader*>(segment_.data() + sizeof(SegmentHeader)));
}

std::atomic<uint64_t>& UsageBoard::decode(uint32_t layer, uint32_t expert) const {
  const UsageHeader& shape = header();
  CHECK(layer < shape.layers && expert < shape.experts, "layer {} expert {}", layer, expert);
  return counters(segment_, shape.layers)[uint64_t{layer} * shape.experts + expert];
}

std::atomic<uint64_t>& UsageBoard::prefill(uint32_t layer, uint32_t expert) const {
  const UsageHeader& shape = header();
  CHECK(layer < shape.layers && expert < shape.experts, "layer {} expert {}", layer, expert);
  return counters(segment_, shape.layers)[(uint64_t{shape.layers} + layer) * shape.experts + expert];
}

LayerUses& UsageBoard::layer(uint32_t layer) const {
  CHECK(layer < header().layers, "layer {} of {}", layer, header().layers);
  return layer_uses(segment_)[layer];
}

void UsageBoard::window_finished(WindowRows rows) const {
  UsageHeader& all = header();
  count(all.prefill_tokens, rows.prompt);
  count(all.decode_tokens, rows.generated);
  // Release: whoever sees the window counted sees its uses and tokens.
  all.windows.store(all.windows.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  all.window_counted.ring();
}

}  // namespace strata::shm
