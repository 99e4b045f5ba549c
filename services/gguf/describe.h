#pragma once
// What `strata inspect` says of a model file. Pure functions; strings of the file come out as valid UTF-8 on
// one line.

#include <cstdint>
#include <string>
#include <vector>

#include "services/gguf/gguf_file.h"

namespace strata::gguf {

struct TypeTotal {
  TensorType type = TensorType::kF32;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};
// One entry for each type that occurs, the largest first.
std::vector<TypeTotal> totals_by_type(const GgufFile& file);

// Tables for people: the file, its metadata (strings cut at 120 characters, arrays after some elements),
// totals by tensor type and, if `tensors`, every tensor.
std::string describe_text(const GgufFile& file, bool tensors);

// The same, tensors included, as one JSON object on one line. Strings are whole. An array gives "count" and
// its first 16 elements as "values"; numbers that JSON cannot hold are the strings "nan", "inf", "-inf".
std::string describe_json(const GgufFile& file);

}  // namespace strata::gguf
