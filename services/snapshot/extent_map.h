#pragma once
// Which pieces of a range of units are free. Best fit: the smallest free piece that is large enough, at its
// beginning; freed pieces join their neighbours. Chosen over buddies because a snapshot's two sizes (113 MiB
// and 1.6 MiB in the released model) are no powers of two, and rounding them up would waste up to half of a
// budget that is counted in bytes. Pure bookkeeping; one thread.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace strata::snapshot {

class ExtentMap {
 public:
  ExtentMap(uint64_t first_unit, uint64_t units);

  // The first unit of a piece of `units` (at least 1); nullopt: no free piece is that long.
  std::optional<uint64_t> take(uint64_t units);
  // Gives back exactly a piece that take() returned; giving back what is free is a bug.
  void give(uint64_t first, uint64_t units);

  uint64_t free_units() const { return free_units_; }
  uint64_t longest_free() const { return by_length_.empty() ? 0 : by_length_.rbegin()->first; }

 private:
  void insert(uint64_t first, uint64_t units);
  void erase(std::map<uint64_t, uint64_t>::iterator piece);

  uint64_t begin_;
  uint64_t end_;
  uint64_t free_units_ = 0;
  std::map<uint64_t, uint64_t> by_place_;              // first unit -> units
  std::set<std::pair<uint64_t, uint64_t>> by_length_;  // (units, first unit)
};

}  // namespace strata::snapshot
