#pragma once
// Routing made up for the simulator: traffic whose properties are known, longer than what is recorded.
//
// A topic ranks the experts of each layer anew; a pick's rank is drawn by Zipf's law, without repetition
// within a token. A part of the picks repeats an expert of the token before. A conversation switches its
// topic now and then; a switch begins with a prompt about the new one. The ranking of every topic may drift.

#include <cstdint>
#include <string>
#include <string_view>

#include "services/base/status.h"
#include "services/residency/trace.h"

namespace strata::simulation {

struct GenerateSpec {
  uint32_t layers = 8, experts = 64, used = 6;
  uint32_t tokens = 4096;  // generated, per conversation
  uint32_t conversations = 1;
  uint32_t topics = 1;          // that all conversations share
  uint32_t switch_tokens = 0;   // generated tokens after which the topic changes; 0: never
  uint32_t prompt_tokens = 32;  // before the first token and at each switch
  double skew = 1;              // exponent of Zipf's law, 0: even
  double repeat = 0.3;          // share of picks that repeat one of the token before
  double drift = 0;             // share of a layer's experts whose places are swapped per 64 tokens
  uint64_t seed = 1;
};

// "strong", "mild", "drift", "alternating", then KEY=VALUE for any field above, separated by commas, e.g.
// "strong,tokens=100000,seed=7". kInvalidArgument names the part that is wrong.
//   mild: skew 0.6; strong: skew 1.2; drift: skew 1, drift 0.05; alternating: 4 topics, switching every 256.
Result<GenerateSpec> parse_generate_spec(std::string_view text);

// The same spec gives the same trace everywhere.
residency::RoutingTrace generate(const GenerateSpec& spec);

}  // namespace strata::simulation
