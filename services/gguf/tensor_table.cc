#include <algorithm>

#include "services/gguf/byte_cursor.h"
#include "services/gguf/container.h"
#include "services/gguf/name_index.h"
#include "services/gguf/value_reader.h"

namespace strata::gguf {
namespace {

// Counts, sizes and positions stay below 2^63, so that the sum of two of them never wraps.
constexpr uint64_t kSizeMax = (uint64_t{1} << 63) - 1;

Result<uint64_t> multiply(const ByteCursor& cursor, uint64_t at, uint64_t a, uint64_t b) {
  if (a != 0 && b > kSizeMax / a) {
    return cursor.error(at, fmt::format("size of {} x {}, expected at most 2^63 - 1", a, b));
  }
  return a * b;
}

Status read_dims(ByteCursor& cursor, TensorInfo& info) {
  const uint64_t at = cursor.position();
  TRY(info.dim_count, cursor.number<uint32_t>("dimension count"));
  if (info.dim_count > std::size(info.dims)) {
    return cursor.error(
        at, fmt::format("dimension count is {}, expected at most {}", info.dim_count, std::size(info.dims)));
  }
  for (uint32_t i = 0; i < info.dim_count; ++i) {
    const uint64_t dim_at = cursor.position();
    TRY(info.dims[i], cursor.number<uint64_t>("dimension"));
    if (info.dims[i] > kSizeMax) {
      return cursor.error(dim_at,
                          fmt::format("dimension {} is {}, expected at most 2^63 - 1", i, info.dims[i]));
    }
  }
  return {};
}

// Fills in type and size.
Status read_type(ByteCursor& cursor, TensorInfo& info, uint64_t dims_at) {
  const uint64_t at = cursor.position();
  TRY(const uint32_t id, cursor.number<uint32_t>("tensor type"));
  const TensorTypeInfo* type = tensor_type_info(id);
  if (type == nullptr) {
    return cursor.error(
        at,
        fmt::format("tensor type {} is not supported, expected one of the format's defined types (0 to 42)",
                    id),
        Code::kUnimplemented);
  }
  info.type = type->type;
  if (info.dims[0] % type->block_values != 0) {
    return cursor.error(dims_at, fmt::format("rows of {} values, expected a multiple of {} for type {}",
                                             info.dims[0], type->block_values, type->name));
  }
  // A dimension of 0 counts as 1 here: whether the others overflow must not depend on their order.
  uint64_t values = 1;
  for (uint64_t dim : info.dims) {
    TRY(values, multiply(cursor, dims_at, values, std::max<uint64_t>(dim, 1)));
  }
  TRY_OK(multiply(cursor, dims_at, (values + type->block_values - 1) / type->block_values, type->block_bytes)
             .map([](uint64_t) {}));
  info.bytes = info.row_bytes() * info.rows();
  return {};
}

uint64_t round_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }

// Tensors follow each other in the order of the table, each padded to the alignment, as every writer does it:
// that leaves no overlap to look for. `data_end` is the end of the one before, from the beginning of the data
// section.
Status read_offset(ByteCursor& cursor, TensorInfo& info, uint64_t alignment, uint64_t& data_end) {
  const uint64_t at = cursor.position();
  TRY(const uint64_t offset, cursor.number<uint64_t>("offset"));
  if (offset % alignment != 0) {
    return cursor.error(
        at, fmt::format("offset is {}, expected a multiple of the alignment {}", offset, alignment));
  }
  if (const uint64_t expected = round_up(data_end, alignment); offset != expected) {
    return cursor.error(
        at, fmt::format("offset is {}, expected {}, the padded end of the tensor before", offset, expected));
  }
  if (offset > kSizeMax || info.bytes > kSizeMax - offset) {
    return cursor.error(
        at, fmt::format("{} bytes at offset {} end at 2^63 or beyond, expected below", info.bytes, offset));
  }
  info.file_offset = offset;  // place_tensors() makes it absolute
  data_end = offset + info.bytes;
  return {};
}

}  // namespace

Status read_tensor_table(ByteCursor& cursor, uint64_t count, Container& container) {
  for (uint64_t i = 0; i < count; ++i) {
    TensorInfo info;
    cursor.set_item({"tensor", i, count, {}});
    TRY(info.name, cursor.string(kKeyBytesMax, "tensor name"));
    cursor.set_item({"tensor", i, count, info.name});
    const uint64_t dims_at = cursor.position();
    TRY_OK(read_dims(cursor, info));
    TRY_OK(read_type(cursor, info, dims_at));
    TRY_OK(read_offset(cursor, info, container.alignment, container.data_end));
    container.tensors.push_back(info);
  }
  container.table_end = cursor.position();
  const std::span<const TensorInfo> tensors = container.tensors;
  if (auto twice = NameIndex<TensorInfo, &TensorInfo::name>(tensors).first_duplicate(tensors)) {
    const std::string_view name = tensors[*twice].name;
    cursor.set_item({"tensor", *twice, count, name});
    return cursor.error(container.position_of(name), "the name occurs twice, expected once");
  }
  return {};
}

Status place_tensors(ByteCursor& cursor, Container& container) {
  if (container.tensors.empty()) {
    container.data_offset = container.data_end = container.table_end;
    return {};
  }
  container.data_offset = round_up(container.table_end, container.alignment);
  if (container.data_end > kSizeMax - container.data_offset) {
    return cursor.error(container.table_end, "the tensors end at 2^63 or beyond, expected below");
  }
  container.data_end += container.data_offset;
  const auto bytes = container.bytes;
  for (TensorInfo& info : container.tensors) {
    info.file_offset += container.data_offset;
    if (info.file_offset > bytes.size() || info.bytes > bytes.size() - info.file_offset) {
      cursor.set_item({"tensor", 0, 0, info.name});
      return cursor.error(
          info.file_offset,
          fmt::format(
              "{} bytes of data are not all there: the file has {} bytes, expected {} (incomplete download?)",
              info.bytes, bytes.size(), container.data_end));
    }
    info.data = bytes.subspan(info.file_offset, info.bytes);
  }
  return {};
}

}  // namespace strata::gguf
