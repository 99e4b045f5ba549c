#include "services/snapshot/extent_map.h"

#include <iterator>

#include "services/base/check.h"

namespace strata::snapshot {

ExtentMap::ExtentMap(uint64_t first_unit, uint64_t units) : begin_(first_unit), end_(first_unit + units) {
  if (units > 0) insert(first_unit, units);
}

std::optional<uint64_t> ExtentMap::take(uint64_t units) {
  CHECK(units > 0);
  const auto best = by_length_.lower_bound({units, 0});
  if (best == by_length_.end()) return std::nullopt;
  const auto [length, first] = *best;
  erase(by_place_.find(first));
  if (length > units) insert(first + units, length - units);
  return first;
}

void ExtentMap::give(uint64_t first, uint64_t units) {
  CHECK(units > 0 && first >= begin_ && first <= end_ && units <= end_ - first, "{} units at {}", units,
        first);
  const auto after = by_place_.lower_bound(first);
  uint64_t joined_first = first;
  uint64_t joined_units = units;
  if (after != by_place_.begin()) {
    const auto before = std::prev(after);
    CHECK(before->first + before->second <= first, "{} is free already", first);
    if (before->first + before->second == first) {
      joined_first = before->first;
      joined_units += before->second;
      erase(before);
    }
  }
  if (after != by_place_.end()) {
    CHECK(after->first >= first + units, "{} is free already", after->first);
    if (after->first == first + units) {
      joined_units += after->second;
      erase(after);
    }
  }
  insert(joined_first, joined_units);
}

void ExtentMap::insert(uint64_t first, uint64_t units) {
  by_place_.emplace(first, units);
  by_length_.emplace(units, first);
  free_units_ += units;
}

void ExtentMap::erase(std::map<uint64_t, uint64_t>::iterator piece) {
  by_length_.erase({piece->second, piece->first});
  free_units_ -= piece->second;
  by_place_.erase(piece);
}

}  // namespace strata::snapshot
