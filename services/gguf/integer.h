#pragma once
// Integers out of metadata values. Writers use whatever integer type they like for a key, so every one is
// taken.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "services/gguf/gguf_file.h"

namespace strata::gguf {

// nullopt: no integer, or not in [0, max].
std::optional<uint64_t> unsigned_value(const Value& value,
                                       uint64_t max = std::numeric_limits<uint64_t>::max());
// nullopt: no integer, or above 2^63 - 1.
std::optional<int64_t> signed_value(const Value& value);
// For errors that say what was found: "u32 7", "string 'abc'", "array of 3 f32".
std::string describe_value(const Value& value);

}  // namespace strata::gguf
