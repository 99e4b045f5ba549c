#include "cpu-expert-worker/work_shares.h"

#include "services/base/check.h"

namespace strata::cpu_expert_worker {
namespace {

// 24 bits of number, 40 of generation: years of requests before one comes again.
constexpr uint32_t kNumberBits = 24;
static_assert(kUnitsMax < 1u << kNumberBits);

constexpr uint64_t word_of(uint64_t generation, uint32_t number) {
  return generation << kNumberBits | number;
}
constexpr uint64_t generation_of(uint64_t word) { return word >> kNumberBits; }
constexpr uint32_t number_of(uint64_t word) { return static_cast<uint32_t>(word) & kUnitsMax; }

constexpr uint32_t share_begin(uint32_t units, uint32_t lane, std::size_t lanes) {
  return static_cast<uint32_t>(uint64_t{units} * lane / lanes);
}

}  // namespace

WorkShares::WorkShares(uint32_t lanes, uint32_t parts) : lanes_(lanes), parts_(parts) {
  CHECK(lanes > 0 && parts > 0, "{} lanes, {} parts", lanes, parts);
}

void WorkShares::open(const StageUnits& units) {
  // Closed first. Whoever sees one of the new numbers (release, acquire) sees that the old round is over,
  // too, and cannot take them for the old round's.
  open_.store(0, std::memory_order_relaxed);
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    CHECK(units[stage] <= kUnitsMax, "{} units", units[stage]);
    units_[stage].store(units[stage], std::memory_order_release);
  }
  // Release: whoever sees the round sees the request as the leader planned it.
  open_.store(++generation_, std::memory_order_release);
}

WorkShares::Round WorkShares::current() const {
  for (;;) {
    Round round;
    round.generation = open_.load(std::memory_order_acquire);
    for (std::size_t stage = 0; stage < kStages; ++stage)
      round.units[stage] = units_[stage].load(std::memory_order_acquire);
    if (open_.load(std::memory_order_relaxed) == round.generation) {
      if (round.generation == 0) round.units = {};
      return round;
    }
  }
}

WorkShares::Claim WorkShares::share(const Round& round, Stage stage, uint32_t lane) const {
  const uint32_t units = round.of(stage);
  return {share_begin(units, lane, lanes_.size()), share_begin(units, lane + 1, lanes_.size())};
}

WorkShares::Claim WorkShares::take(const Round& round, Stage stage, uint32_t lane) {
  const uint32_t units = round.of(stage);
  if (units == 0) return {};
  const std::size_t lanes = lanes_.size();
  for (std::size_t i = 0; i < lanes; ++i) {
    const auto owner = static_cast<uint32_t>((lane + i) % lanes);
    const uint32_t begin = share_begin(units, owner, lanes);
    const uint32_t size = share_begin(units, owner + 1, lanes) - begin;
    auto& taken = lanes_[owner].taken[static_cast<std::size_t>(stage)];
    uint64_t word = taken.load(std::memory_order_relaxed);
    // A word of an older round means that nothing of this share is taken yet. Only while that or a number
    // below `size` stands there can the exchange succeed, so only while the round is not complete: then all
    // that the leader planned stays as it is until finish(). Relaxed: current() has made the plan visible.
    for (;;) {
      if (generation_of(word) > round.generation) return {};
      const uint32_t first = generation_of(word) == round.generation ? number_of(word) : 0;
      if (first >= size) break;
      const uint32_t count = stage == Stage::kWhole ? 1 : (size - first + parts_ - 1) / parts_;
      if (taken.compare_exchange_weak(word, word_of(round.generation, first + count),
                                      std::memory_order_relaxed, std::memory_order_relaxed))
        return {begin + first, begin + first + count};
    }
  }
  return {};
}

void WorkShares::finish(const Round& round, Stage stage, uint32_t lane, const Claim& claim) {
  auto& done = lanes_[lane].done[static_cast<std::size_t>(stage)];
  const uint64_t word = done.load(std::memory_order_relaxed);  // only this lane writes it
  const uint32_t before = generation_of(word) == round.generation ? number_of(word) : 0;
  // Release: pairs with complete().
  done.store(word_of(round.generation, before + claim.size()), std::memory_order_release);
}

bool WorkShares::complete(const Round& round, Stage stage) const {
  uint64_t done_units = 0;
  for (const Lane& lane : lanes_) {
    const uint64_t word = lane.done[static_cast<std::size_t>(stage)].load(std::memory_order_acquire);
    if (generation_of(word) > round.generation) return true;
    if (generation_of(word) == round.generation) done_units += number_of(word);
  }
  return done_units == round.of(stage);
}

}  // namespace strata::cpu_expert_worker
