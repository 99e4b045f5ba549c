#include <bit>

#include "services/gguf/byte_cursor.h"
#include "services/gguf/container.h"
#include "services/gguf/name_index.h"
#include "services/gguf/value_reader.h"

namespace strata::gguf {
namespace {

Result<KeyValue> read_pair(ByteCursor& cursor, Item item) {
  const uint64_t at = cursor.position();
  TRY(const std::string_view key, cursor.string(kKeyBytesMax, "key"));
  if (key.empty()) return cursor.error(at, "is empty, expected a name");
  item.name = key;
  cursor.set_item(item);
  const uint64_t type_at = cursor.position();
  TRY(const uint32_t type, cursor.number<uint32_t>("value type"));
  TRY(Value value, read_value(cursor, type, type_at));
  return KeyValue{key, std::move(value)};
}

Result<uint32_t> read_alignment(const ByteCursor& cursor, const Value& value, uint64_t at) {
  if (value.type != ValueType::kU32) {
    return cursor.error(at, fmt::format("has type {}, expected u32", value_type_name(value.type)));
  }
  const uint64_t alignment = std::get<uint64_t>(value.data);
  if (!std::has_single_bit(alignment))
    return cursor.error(at, fmt::format("is {}, expected a power of two", alignment));
  return static_cast<uint32_t>(alignment);
}

}  // namespace

// Nothing is reserved from a count: memory grows with what the file really has.
Status read_metadata(ByteCursor& cursor, uint64_t count, Container& container) {
  for (uint64_t i = 0; i < count; ++i) {
    const Item item{"key", i, count, {}};
    cursor.set_item(item);
    const uint64_t at = cursor.position();
    TRY(KeyValue pair, read_pair(cursor, item));
    if (pair.key == "general.alignment") {
      TRY(container.alignment, read_alignment(cursor, pair.value, at));
    }
    container.metadata.push_back(std::move(pair));
  }
  const std::span<const KeyValue> pairs = container.metadata;
  if (auto twice = NameIndex<KeyValue, &KeyValue::key>(pairs).first_duplicate(pairs)) {
    const std::string_view key = pairs[*twice].key;
    cursor.set_item({"key", *twice, count, key});
    return cursor.error(container.position_of(key), "occurs twice, expected once");
  }
  return {};
}

}  // namespace strata::gguf
