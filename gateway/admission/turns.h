#pragma once
// Whose turn it is of those that wait. By class first, the lowest number first; within a class the keys take
// turns, the one whose last grant is the longest ago first; within a key it goes by arrival. After
// kPassesMax grants in a row that passed somebody of a later class, one goes to the later classes,
// whichever of them: so nobody waits for ever, and work in the background has a share of its own (rule K1).
//
//   TurnHistory history;                       // what was granted so far
//   Line line(waiting);                        // those that wait, in order of arrival
//   TicketId next = line.pop(history);         // with a copy of the history: what would be granted
//
// A pop looks at every key that waits, so the whole order of n requests of k keys is O(n k).

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "gateway/conversations/conversation_types.h"

namespace strata::gateway {

using TicketId = uint64_t;

inline constexpr uint32_t kPassesMax = 7;

struct TurnHistory {
  // When each key was granted a sequence last, counted in grants. As many entries as there are keys.
  std::map<NamespaceId, uint64_t> last_grant = {};
  uint64_t grants = 0;
  uint32_t passes = 0;  // grants since one of a later class, that passed somebody
};

struct InLine {
  TicketId ticket = 0;
  NamespaceId key = {};
  int32_t priority = 0;  // lower comes earlier
};

class Line {
 public:
  // In order of arrival.
  explicit Line(std::span<const InLine> waiting);

  bool empty() const { return classes_.empty(); }
  // The next one; the history knows of it afterwards. Not when empty.
  TicketId pop(TurnHistory& history);

 private:
  struct Place {
    std::size_t arrival = 0;
    TicketId ticket = 0;
  };
  using Keys = std::map<NamespaceId, std::deque<Place>>;
  using Classes = std::map<int32_t, Keys>;

  Classes classes_;  // no class and no key without somebody
};

}  // namespace strata::gateway
