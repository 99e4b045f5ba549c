#include "gateway/admission/turns.h"

#include <iterator>
#include <tuple>

#include "services/base/check.h"

namespace strata::gateway {

Line::Line(std::span<const InLine> waiting) {
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const InLine& one = waiting[i];
    classes_[one.priority][one.key].push_back({.arrival = i, .ticket = one.ticket});
  }
}

TicketId Line::pop(TurnHistory& history) {
  CHECK(!classes_.empty(), "nobody is in line");
  const auto foremost = classes_.begin();
  const bool passes = std::next(foremost) != classes_.end();
  const bool later = passes && history.passes >= kPassesMax;

  // Keys that never had a grant come first, by the arrival of their oldest.
  std::tuple<uint64_t, std::size_t> best_rank{UINT64_MAX, SIZE_MAX};
  Classes::iterator best_class;
  Keys::iterator best_key;
  const auto last = later ? classes_.end() : std::next(foremost);
  for (auto each = later ? std::next(foremost) : foremost; each != last; ++each) {
    for (auto key = each->second.begin(); key != each->second.end(); ++key) {
      const auto granted = history.last_grant.find(key->first);
      const std::tuple<uint64_t, std::size_t> rank{granted == history.last_grant.end() ? 0 : granted->second,
                                                   key->second.front().arrival};
      if (rank >= best_rank) continue;
      best_rank = rank;
      best_class = each;
      best_key = key;
    }
  }

  const TicketId ticket = best_key->second.front().ticket;
  history.last_grant[best_key->first] = ++history.grants;
  if (later) {
    history.passes = 0;
  } else if (passes) {
    ++history.passes;
  }
  best_key->second.pop_front();
  if (best_key->second.empty()) best_class->second.erase(best_key);
  if (best_class->second.empty()) classes_.erase(best_class);
  return ticket;
}

}  // namespace strata::gateway
