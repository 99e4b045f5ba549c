#pragma once
// Recorded routing: which experts each token of some conversations used (models/README.md,
// "traces/routing.bin").

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace strata::model {

struct RoutingTrace {
  struct Conversation {
    uint32_t tokens = 0;
    std::vector<uint16_t> picks;  // (tokens, layers, used), router order
  };
  uint32_t layers = 0;
  uint32_t experts = 0;  // of a layer
  uint32_t used = 0;     // per token
  std::vector<Conversation> conversations;

  std::span<const uint16_t> picks(const Conversation& conversation, uint32_t token, uint32_t layer) const {
    return std::span(conversation.picks).subspan((std::size_t{token} * layers + layer) * used, used);
  }
};

// Ids are bytes; those of more than 256 experts are 16 bits wide. kNotFound; kDataLoss with the byte where it
// stops making sense.
Result<RoutingTrace> read_routing_trace(const std::string& path);

}  // namespace strata::model
