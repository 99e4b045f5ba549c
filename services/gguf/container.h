#pragma once
// One GGUF file taken apart and checked (gguf-format, "What a robust reader checks", 1 to 17). Knows nothing
// of shards.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/gguf/gguf_file.h"

namespace strata::gguf {

struct Container {
  std::span<const std::byte> bytes;  // of the file
  uint32_t version = 0;
  uint32_t alignment = 32;
  std::vector<KeyValue> metadata;
  std::vector<TensorInfo> tensors;
  uint64_t table_end = 0;    // of the tensor table: header, metadata and table are [0, table_end)
  uint64_t data_offset = 0;  // table_end without tensors
  uint64_t data_end = 0;     // of the last tensor, without padding

  // Of a key or tensor name, for errors.
  uint64_t position_of(std::string_view name) const {
    return static_cast<uint64_t>(name.data() - reinterpret_cast<const char*>(bytes.data()));
  }
};

// Views into `bytes`, which must outlive the result. `name` stands for the file in errors.
Result<Container> parse_container(std::span<const std::byte> bytes, const std::string& name);

// The steps after the header, each in a file of its own.
class ByteCursor;
Status read_metadata(ByteCursor& cursor, uint64_t count, Container& container);
Status read_tensor_table(ByteCursor& cursor, uint64_t count, Container& container);
// Once the whole table is known: where the tensors are in the file, and whether the file has them.
Status place_tensors(ByteCursor& cursor, Container& container);

}  // namespace strata::gguf
