#pragma once
// What a rule makes of the bytes of a token when nothing is known of its callers, as a deterministic
// automaton that grows while it is used. A path starts in some state of the rule; below it everything is
// exact, calls included. Where the rule itself ends, the path leaves it ("exits") and is not followed here.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "services/grammar/automaton.h"
#include "services/grammar/mask_place.h"

namespace strata::grammar {

class LocalPaths {
 public:
  using Id = int32_t;
  static constexpr Id kDead = -1;
  static constexpr Id kOverflow = -2;  // too many paths; nothing is known

  explicit LocalPaths(const Automaton& automaton);

  // The place alone, neither its calls followed nor its end: a matcher follows these as configs of their own.
  // The rule that the path stays in is that of the last caller; the rules below it must not be counted.
  Id start(const MaskPlace& place);
  Id step(Id from, uint8_t byte);
  // How often the rule began anew on the way here, at least (counted rules; otherwise 0).
  uint8_t restarts(Id id) const { return nodes_[index(id)].restarts; }
  // For each way in which the rule can end here, how often it began anew before.
  const std::vector<uint8_t>& exits(Id id) const { return nodes_[index(id)].exits; }

  std::size_t size() const { return nodes_.size(); }

  // kOverflow beyond so much work from now on, in comparisons of places.
  void give_work(uint64_t comparisons) { work_left_ = comparisons; }
  bool out_of_work() const { return work_left_ == 0; }  // what is known is not all there is

 private:
  // stack: waiting callers within the path; 0 is the rule that the path started in. count: as in Config, but
  // restarts since the start of the path where the stack is 0.
  struct Place {
    StateId state = 0;
    uint32_t count = 0;
    uint32_t stack = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Caller {
    Place place;
    uint32_t restarts = 0;  // of the rule that the path started in
  };
  struct Node {
    std::vector<Place> places;  // that read bytes
    uint8_t restarts = 0;
    std::vector<uint8_t> exits;
    std::unique_ptr<std::array<Id, 256>> next;
  };

  static std::size_t index(Id id) { return static_cast<std::size_t>(id); }
  uint32_t restarts_of(const Place& place) const {
    return place.stack == 0 ? place.count : callers_[place.stack].restarts;
  }
  Id node_of(std::vector<Place> kernel);
  bool close(std::vector<Place> found, Node& node);
  void spend(uint64_t comparisons) { work_left_ -= std::min(comparisons, work_left_); }
  uint32_t stack_of(const Place& caller);

  const Automaton& automaton_;
  uint64_t work_left_ = std::numeric_limits<uint64_t>::max();
  std::vector<Node> nodes_;
  std::map<std::vector<Place>, Id> by_kernel_;
  std::map<MaskPlace, Id> starts_;
  std::vector<Caller> callers_;
  std::map<Place, uint32_t> stacks_;
};

}  // namespace strata::grammar
