#pragma once
// How the work of a request is dealt out to the threads ("lanes") of a pool, with no lock and hardly a shared
// cache line (docs/board.md, "Within a worker"). A request has stages of numbered units. Of each stage every
// lane has a share, an equal piece of the numbers; it takes from its own share first, half of what is left at
// a time, then from the shares of the others. So nobody waits for a lane that is late, asleep or slow: what
// such a lane has not taken yet, the others take.
//
// The leading thread opens a request, all lanes take and finish, the leader waits for complete(). A request
// must be complete before the next is opened.

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "services/base/limits.h"

namespace strata::cpu_expert_worker {

enum class Stage : uint8_t { kWhole, kIntermediate, kOutput };
inline constexpr std::size_t kStages = 3;
inline constexpr uint32_t kUnitsMax = (1u << 24) - 1;  // of a stage

// Units of each stage.
using StageUnits = std::array<uint32_t, kStages>;

class WorkShares {
 public:
  // A request as a lane sees it. Generation 0: none was open.
  struct Round {
    uint64_t generation = 0;
    StageUnits units = {};
    uint32_t of(Stage stage) const { return units[static_cast<std::size_t>(stage)]; }
  };
  struct Claim {
    uint32_t begin = 0, end = 0;
    bool empty() const { return begin == end; }
    uint32_t size() const { return end - begin; }
  };

  // take() gives one part in `parts` of what is left of a share; 1: all of it at once (to measure against).
  explicit WorkShares(uint32_t lanes, uint32_t parts = 2);
  uint32_t lanes() const { return static_cast<uint32_t>(lanes_.size()); }

  // Leader. What was written before is visible to whoever takes a unit.
  void open(const StageUnits& units);

  // Any lane, at any time: the request that is open. A late lane may hold a round that is over; it gets no
  // unit of it, nor by mistake one of the next.
  Round current() const;
  // All units of a lane's own share, taken or not.
  Claim share(const Round& round, Stage stage, uint32_t lane) const;
  // Units of one lane's share, the own one first; of Stage::kWhole one at a time. Empty: all are taken.
  Claim take(const Round& round, Stage stage, uint32_t lane);
  // The units of a claim are done; what they wrote is visible to whoever finds the stage complete.
  void finish(const Round& round, Stage stage, uint32_t lane, const Claim& claim);
  // All units of the stage are done (or the round is over, which implies it).
  bool complete(const Round& round, Stage stage) const;

 private:
  // Words of (generation, number): what a lane left behind in an earlier request is told from this one's.
  // A line and its neighbour, which the prefetcher fetches along.
  struct alignas(2 * kCacheLine) Lane {
    std::array<std::atomic<uint64_t>, kStages> taken{};  // units of its share that are taken; by anybody
    std::array<std::atomic<uint64_t>, kStages> done{};   // units that the lane has done; by itself
  };

  std::vector<Lane> lanes_;
  uint32_t parts_;
  alignas(2 * kCacheLine) std::atomic<uint64_t> open_{0};  // generation; 0 while the leader writes units_
  std::array<std::atomic<uint32_t>, kStages> units_{};
  uint64_t generation_ = 0;  // leader only
};

}  // namespace strata::cpu_expert_worker
