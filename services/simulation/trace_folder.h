#pragma once
// All recorded conversations of a folder.

#include <cstdint>
#include <string>
#include <vector>

#include "services/residency/trace.h"

namespace strata::simulation {

struct NamedTrace {
  residency::RoutingTrace trace;   // without the draft layer
  std::vector<std::string> names;  // of the conversations
};

// Every file NAME.bin of the folder that begins as a routing trace, in the order of their names, as one
// trace; or a single such file. Beside it NAME.json may say more, as models/traces/routing.json does: the
// conversations' names ("conversations": [{"name": ...}]) and which layers are the trunk's ("layers": "0-7
// are the trunk's; ..."), the others are left out. Without it conversations are called NAME/0, NAME/1 and all
// layers count.
// layers: counts the first so many instead; 0: as above.
// kNotFound: no folder, or no trace in it; kInvalidArgument: traces of different models in one folder, or
// fewer layers than asked for; kDataLoss: a damaged trace, or a NAME.json that is no JSON.
Result<NamedTrace> read_trace_folder(const std::string& path, uint32_t layers);

}  // namespace strata::simulation
