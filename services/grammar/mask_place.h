#pragma once
// What a cached mask is made for: a state, and, where a mask of the state alone would say little, the states
// that its callers go on in.

#include <array>
#include <compare>
#include <cstdint>

#include "services/grammar/automaton.h"
#include "services/grammar/limits.h"

namespace strata::grammar {

struct MaskPlace {
  // The state, then where its rule's caller goes on, then that one's; zero beyond `count`.
  std::array<StateId, kCallersMax + 1> states = {};
  uint32_t count = 1;

  static MaskPlace of(StateId state) {
    MaskPlace place;
    place.states[0] = state;
    return place;
  }
  StateId outermost() const { return states[count - 1]; }
  // Needs count <= kCallersMax.
  MaskPlace behind(StateId caller) const {
    MaskPlace place = *this;
    place.states[place.count++] = caller;
    return place;
  }
  auto operator<=>(const MaskPlace&) const = default;
};

}  // namespace strata::grammar
