#pragma once
// Puts chosen experts in the place of the router's choice, for measurements with weights that were never
// trained (synthetic_routing.h). The router is computed all the same; the experts' weights are its
// probabilities of the chosen ones, renormalized. Answers mean nothing then.

#include <cstdint>
#include <span>

namespace strata::model {

struct RoutingPlace {
  uint32_t sequence = 0;  // WindowRow::routing_sequence
  uint32_t position = 0;  // of the token in its sequence
};

class RoutingOverride {
 public:
  virtual ~RoutingOverride() = default;
  // Fills `ids` with ids.size() different experts of the layer: a pure function of layer and place.
  // One thread per layer at a time; different layers may be asked by different threads at once.
  virtual void choose(uint32_t layer, RoutingPlace place, std::span<uint16_t> ids) = 0;
};

}  // namespace strata::model
