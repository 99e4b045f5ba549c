#pragma once
// Metadata values as the file has them.

#include <functional>

#include "services/base/status.h"
#include "services/gguf/byte_cursor.h"
#include "services/gguf/gguf_file.h"

namespace strata::gguf {

inline constexpr uint64_t kKeyBytesMax = 65535;
inline constexpr uint64_t kStringBytesMax = uint64_t{1} << 30;
// An array of numbers has depth 1. Each level is a level of recursion, and twelve bytes of a file are enough
// for one.
inline constexpr uint32_t kArrayDepthMax = 4;

// The value of the type whose number the file gives as `type_id`. `at` is where that number stands, for
// errors.
Result<Value> read_value(ByteCursor& cursor, uint32_t type_id, uint64_t at);

// Calls `visit` for each element of an array that read_value() returned, as long as it returns true. Elements
// that are arrays come as such.
void visit_elements(const Array& array, const std::function<bool(const Value&)>& visit);

}  // namespace strata::gguf
