#include "services/gguf/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "services/gguf/printable.h"
#include "services/gguf/value_reader.h"

namespace strata::gguf {
namespace {

constexpr uint64_t kArrayElementsShown = 8;
constexpr std::size_t kElementCharsMax = 24;

std::string value_text(const Value& value, std::size_t chars_max);

std::string array_text(const Array& array) {
  std::string out = "[";
  uint64_t shown = 0;
  visit_elements(array, [&](const Value& element) {
    if (shown == kArrayElementsShown) return false;
    if (shown++ > 0) out += ", ";
    out += value_text(element, kElementCharsMax);
    return true;
  });
  return out + (shown < array.count ? ", ...]" : "]");
}

std::string value_text(const Value& value, std::size_t chars_max) {
  struct Text {
    ValueType type;
    std::size_t chars_max;
    std::string operator()(uint64_t number) const { return fmt::format("{}", number); }
    std::string operator()(int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const {
      // The shortest text that gives the same f32 again: 1e-06, not 9.999999974752427e-07.
      return type == ValueType::kF32 ? fmt::format("{}", static_cast<float>(number))
                                     : fmt::format("{}", number);
    }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::string_view text) const { return printable(text, chars_max); }
    std::string operator()(const std::shared_ptr<const Array>& array) const { return array_text(*array); }
  };
  return std::visit(Text{value.type, chars_max}, value.data);
}

std::string type_text(const Value& value) {
  const auto* array = std::get_if<std::shared_ptr<const Array>>(&value.data);
  if (array == nullptr) return std::string(value_type_name(value.type));
  return fmt::format("{}[{}]", value_type_name((*array)->element), (*array)->count);
}

std::string dims_text(const TensorInfo& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.dims, tensor.dims + tensor.dim_count, ", "));
}

// Columns as wide as their widest cell, the last one as it is.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    out += " ";
    for (std::size_t i = 0; i < row.size(); ++i)
      out += fmt::format(" {:{}}", row[i], i + 1 < row.size() ? widths[i] + 1 : 0);
    out += "\n";
  }
  return out;
}

std::string metadata_table(const GgufFile& file) {
  std::vector<std::vector<std::string>> rows;
  for (const KeyValue& pair : file.metadata()) {
    rows.push_back({printable(pair.key), type_text(pair.value), value_text(pair.value, kPrintableCharsMax)});
  }
  return table(rows);
}

std::string totals_table(const GgufFile& file) {
  std::vector<std::vector<std::string>> rows;
  for (const TypeTotal& total : totals_by_type(file)) {
    rows.push_back({std::string(tensor_type_info(total.type).name), fmt::format("{} tensors", total.tensors),
                    fmt::format("{} bytes", total.bytes)});
  }
  return table(rows);
}

std::string tensor_table(const GgufFile& file) {
  std::vector<std::vector<std::string>> rows;
  for (const TensorInfo& tensor : file.tensors()) {
    rows.push_back({printable(tensor.name), std::string(tensor_type_info(tensor.type).name),
                    dims_text(tensor), fmt::format("{} bytes", tensor.bytes),
                    fmt::format("shard {}", tensor.shard + 1)});
  }
  return table(rows);
}

}  // namespace

std::vector<TypeTotal> totals_by_type(const GgufFile& file) {
  std::map<TensorType, TypeTotal> totals;
  for (const TensorInfo& tensor : file.tensors()) {
    TypeTotal& total = totals[tensor.type];
    total.type = tensor.type;
    ++total.tensors;
    total.bytes += tensor.bytes;
  }
  std::vector<TypeTotal> sorted;
  for (const auto& [type, total] : totals) sorted.push_back(total);
  std::ranges::sort(sorted, [](const TypeTotal& a, const TypeTotal& b) {
    return std::pair(b.bytes, a.type) < std::pair(a.bytes, b.type);
  });
  return sorted;
}

std::string describe_text(const GgufFile& file, bool tensors) {
  std::string out;
  for (const std::string& path : file.shard_paths()) out += printable(path, path.size()) + "\n";
  const std::size_t shards = file.shard_paths().size();
  out += fmt::format("GGUF version {}, {} bytes{}, fingerprint {}\n", file.version(), file.total_bytes(),
                     shards == 1 ? "" : fmt::format(" in {} shards", shards), file.fingerprint());
  out += fmt::format("\nMetadata: {} keys\n{}", file.metadata().size(), metadata_table(file));
  out += fmt::format("\nTensors: {}\n{}", file.tensors().size(), totals_table(file));
  if (tensors) out += fmt::format("\n{}", tensor_table(file));
  return out;
}

}  // namespace strata::gguf
