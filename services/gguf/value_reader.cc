#include "services/gguf/value_reader.h"

#include <array>

#include "services/base/check.h"

namespace strata::gguf {
namespace {

struct TypeSize {
  std::string_view name;
  uint64_t bytes_min;  // the size, or the least of a string or array
};

// Indexed by ValueType.
constexpr std::array<TypeSize, 13> kTypeSizes = {{{"u8", 1},
                                                  {"i8", 1},
                                                  {"u16", 2},
                                                  {"i16", 2},
                                                  {"u32", 4},
                                                  {"i32", 4},
                                                  {"f32", 4},
                                                  {"bool", 1},
                                                  {"string", 8},
                                                  {"array", 12},
                                                  {"u64", 8},
                                                  {"i64", 8},
                                                  {"f64", 8}}};

const TypeSize& type_size(ValueType type) { return kTypeSizes[static_cast<uint32_t>(type)]; }

Result<ValueType> known_type(const ByteCursor& cursor, uint32_t id, uint64_t at, const char* what) {
  if (id >= kTypeSizes.size()) {
    return cursor.error(at, fmt::format("{} is {}, expected 0 to {}", what, id, kTypeSizes.size() - 1));
  }
  return static_cast<ValueType>(id);
}

Result<Array> read_array(ByteCursor& cursor, uint32_t depth);

// Checks the elements and moves behind them.
Status skip_elements(ByteCursor& cursor, ValueType element, uint64_t count, uint32_t depth) {
  if (element == ValueType::kString) {
    for (uint64_t i = 0; i < count; ++i)
      TRY_OK(cursor.string(kStringBytesMax, "string in an array").map([](auto) {}));
  } else if (element == ValueType::kArray) {
    for (uint64_t i = 0; i < count; ++i) TRY_OK(read_array(cursor, depth + 1).map([](const Array&) {}));
  } else {
    TRY_OK(cursor.take(count * type_size(element).bytes_min, "array").map([](auto) {}));
  }
  return {};
}

Result<Array> read_array(ByteCursor& cursor, uint32_t depth) {
  const uint64_t at = cursor.position();
  if (depth > kArrayDepthMax) {
    return cursor.error(at, fmt::format("arrays nested {} deep, expected at most {}", depth, kArrayDepthMax));
  }
  TRY(const uint32_t id, cursor.number<uint32_t>("array element type"));
  TRY(const ValueType element, known_type(cursor, id, at, "array element type"));
  TRY(const uint64_t count, cursor.number<uint64_t>("array count"));
  // The division cannot wrap; count times size could.
  if (const uint64_t count_max = cursor.left() / type_size(element).bytes_min; count > count_max) {
    return cursor.error(
        at, fmt::format("array of {} elements of type {}, expected at most {} in the rest of the file", count,
                        type_size(element).name, count_max));
  }
  const uint64_t begin = cursor.position();
  TRY_OK(skip_elements(cursor, element, count, depth));
  return Array{element, count, cursor.range(begin, cursor.position())};
}

template <class Stored, class As>
Result<Value> read_number(ByteCursor& cursor, ValueType type) {
  TRY(const Stored number, cursor.number<Stored>("value"));
  return Value{type, static_cast<As>(number)};
}

Result<Value> read_known(ByteCursor& cursor, ValueType type) {
  switch (type) {
    case ValueType::kU8:
      return read_number<uint8_t, uint64_t>(cursor, type);
    case ValueType::kI8:
      return read_number<int8_t, int64_t>(cursor, type);
    case ValueType::kU16:
      return read_number<uint16_t, uint64_t>(cursor, type);
    case ValueType::kI16:
      return read_number<int16_t, int64_t>(cursor, type);
    case ValueType::kU32:
      return read_number<uint32_t, uint64_t>(cursor, type);
    case ValueType::kI32:
      return read_number<int32_t, int64_t>(cursor, type);
    case ValueType::kF32:
      return read_number<float, double>(cursor, type);
    case ValueType::kBool:
      return read_number<uint8_t, bool>(cursor, type);
    case ValueType::kU64:
      return read_number<uint64_t, uint64_t>(cursor, type);
    case ValueType::kI64:
      return read_number<int64_t, int64_t>(cursor, type);
    case ValueType::kF64:
      return read_number<double, double>(cursor, type);
    case ValueType::kString: {
      TRY(const std::string_view text, cursor.string(kStringBytesMax, "string"));
      return Value{type, text};
    }
    case ValueType::kArray: {
      TRY(const Array array, read_array(cursor, 1));
      return Value{type, std::make_shared<const Array>(array)};
    }
  }
  CHECK(false, "value type {}", static_cast<uint32_t>(type));
  return Value{};
}

}  // namespace

std::string_view value_type_name(ValueType type) { return type_size(type).name; }

Result<Value> read_value(ByteCursor& cursor, uint32_t type_id, uint64_t at) {
  TRY(const ValueType type, known_type(cursor, type_id, at, "value type"));
  return read_known(cursor, type);
}

void visit_elements(const Array& array, const std::function<bool(const Value&)>& visit) {
  ByteCursor cursor(array.bytes, "array");
  for (uint64_t i = 0; i < array.count; ++i) {
    const Result<Value> value = read_known(cursor, array.element);
    CHECK(value.has_value(), "an array that was checked before: {}", value.error().message());
    if (!visit(*value)) return;
  }
}

}  // namespace strata::gguf
