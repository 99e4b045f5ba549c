#pragma once

#include <boost/json.hpp>

#include "gateway/chat_template/value.h"

namespace strata::chat_template {

// Everything inside, names of members included, has the given origin.
Value from_json(Heap& heap, Budget& budget, const boost::json::value& json, Origin origin);

// Bytes of all strings and a little for everything else: what the limits grow with.
uint64_t json_bytes(const boost::json::value& json, uint32_t depth = 0);

}  // namespace strata::chat_template
