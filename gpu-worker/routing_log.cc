#include "gpu-worker/routing_log.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"

namespace strata::gpu_worker {

RoutingLog::RoutingLog(const RoutingShape& shape, uint32_t rows_max, std::function<void()> rows_there)
    : shape_(shape),
      rows_max_(rows_max),
      rows_there_(std::move(rows_there)),
      rows_(rows_max),
      experts_(std::size_t{rows_max} * shape.picks()) {
  CHECK(rows_max > 0 && shape.picks() > 0, "{} rows of {} picks", rows_max, shape.picks());
}

void RoutingLog::add(std::span<const RoutedRow> rows, std::span<const uint16_t> routed) {
  CHECK(routed.size() == rows.size() * shape_.picks(), "{} picks of {} rows", routed.size(), rows.size());
  const uint64_t added = added_.load(std::memory_order_relaxed);
  const uint64_t room = rows_max_ - (added - taken_.load(std::memory_order_acquire));
  const std::size_t fit = std::min<std::size_t>(rows.size(), room), used = shape_.used;
  for (std::size_t row = 0; row < fit; ++row) {
    const std::size_t at = (added + row) % rows_max_;
    rows_[at] = rows[row];
    uint16_t* picks = experts_.data() + at * shape_.picks();
    for (uint32_t layer = 0; layer < shape_.layers; ++layer)
      std::copy_n(routed.data() + (layer * rows.size() + row) * used, used, picks + layer * used);
  }
  if (fit < rows.size()) dropped_.fetch_add(rows.size() - fit, std::memory_order_relaxed);
  added_.store(added + fit, std::memory_order_release);
}

RoutingLog::Taken RoutingLog::take(uint32_t rows_max) {
  Taken taken;
  const uint64_t first = taken_.load(std::memory_order_relaxed);
  const uint64_t count = std::min<uint64_t>(added_.load(std::memory_order_acquire) - first, rows_max);
  taken.rows.reserve(count);
  taken.experts.reserve(count * shape_.picks());
  for (uint64_t row = first; row < first + count; ++row) {
    const std::size_t at = row % rows_max_;
    taken.rows.push_back(rows_[at]);
    const auto picks = std::span(experts_).subspan(at * shape_.picks(), shape_.picks());
    taken.experts.insert(taken.experts.end(), picks.begin(), picks.end());
  }
  taken_.store(first + count, std::memory_order_release);
  taken.dropped = dropped_.exchange(0, std::memory_order_relaxed);
  return taken;
}

}  // namespace strata::gpu_worker
