#pragma once
// Recorded routing: which experts each token of some conversations used. The format STRTRC01, little-endian:
//   8 bytes "STRTRC01"; u32 conversations, layers, experts of a layer, experts used per token
//   per conversation: u32 n; i32 token[n]; u8 role[n]; u8 domain[n]; expert[n][layers][used] in router order,
//   each one byte, or two (u16) where a layer has more than 256 experts.
// Source: models/README.md, "traces/routing.bin". A trace may hold the draft layer as its last one; the file
// does not say so.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace strata::residency {

// How a token came to be: read (prefill) or generated (decode).
enum class TokenRole : uint8_t { kSystem = 0, kPrompt = 1, kGenerated = 2 };

struct RoutingTrace {
  struct Conversation {
    std::vector<int32_t> tokens;   // ids, (tokens)
    std::vector<TokenRole> roles;  // (tokens)
    std::vector<uint8_t> domains;  // (tokens); what the recorder made of the topic, 0 where nobody knows
    std::vector<uint16_t> picks;   // (tokens, layers, used), router order
  };
  uint32_t layers = 0;
  uint32_t experts = 0;  // of a layer
  uint32_t used = 0;     // per token
  std::vector<Conversation> conversations;

  std::span<const uint16_t> picks(const Conversation& conversation, std::size_t token, uint32_t layer) const {
    return std::span(conversation.picks).subspan((token * layers + layer) * used, used);
  }
};

// kNotFound; kDataLoss with the byte where it stops making sense.
Result<RoutingTrace> read_routing_trace(const std::string& path);

// Replaces the file as a whole: whoever reads sees the old one or the new one. kInvalidArgument names the
// conversation and field that cannot be written; kNotFound, kPermissionDenied, kResourceExhausted, kUnknown
// by the file system.
Status write_routing_trace(const RoutingTrace& trace, const std::string& path);

}  // namespace strata::residency
