#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>
#include <cmath>

#include "services/gguf/describe.h"
#include "services/gguf/printable.h"
#include "services/gguf/value_reader.h"

namespace strata::gguf {
namespace {

namespace json = boost::json;

constexpr uint64_t kArrayElementsShown = 16;

json::value value_json(const Value& value);

json::value float_json(double number, ValueType type) {
  if (!std::isfinite(number)) return json::value(std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
  if (type != ValueType::kF32) return json::value(number);
  // The double nearest to the shortest decimal text of the f32, so that 1e-6 is printed as such.
  const std::string text = fmt::format("{}", static_cast<float>(number));
  double shortest = number;
  std::from_chars(text.data(), text.data() + text.size(), shortest);
  return json::value(shortest);
}

json::object array_json(const Array& array) {
  json::array values;
  visit_elements(array, [&](const Value& element) {
    if (values.size() == kArrayElementsShown) return false;
    values.push_back(value_json(element));
    return true;
  });
  return {{"of", value_type_name(array.element)}, {"count", array.count}, {"values", std::move(values)}};
}

json::value value_json(const Value& value) {
  struct Json {
    ValueType type;
    json::value operator()(uint64_t number) const { return json::value(number); }
    json::value operator()(int64_t number) const { return json::value(number); }
    json::value operator()(double number) const { return float_json(number, type); }
    json::value operator()(bool flag) const { return json::value(flag); }
    json::value operator()(std::string_view text) const { return json::value(valid_utf8(text)); }
    json::value operator()(const std::shared_ptr<const Array>& array) const { return array_json(*array); }
  };
  return std::visit(Json{value.type}, value.data);
}

json::array metadata_json(const GgufFile& file) {
  json::array pairs;
  for (const KeyValue& pair : file.metadata()) {
    pairs.push_back({{"key", valid_utf8(pair.key)},
                     {"type", value_type_name(pair.value.type)},
                     {"value", value_json(pair.value)}});
  }
  return pairs;
}

json::array totals_json(const GgufFile& file) {
  json::array totals;
  for (const TypeTotal& total : totals_by_type(file)) {
    totals.push_back(
        {{"type", tensor_type_info(total.type).name}, {"tensors", total.tensors}, {"bytes", total.bytes}});
  }
  return totals;
}

json::array tensors_json(const GgufFile& file) {
  json::array tensors;
  for (const TensorInfo& tensor : file.tensors()) {
    tensors.push_back({{"name", valid_utf8(tensor.name)},
                       {"type", tensor_type_info(tensor.type).name},
                       {"dims", json::array(tensor.dims, tensor.dims + tensor.dim_count)},
                       {"bytes", tensor.bytes},
                       {"file_offset", tensor.file_offset},
                       {"shard", tensor.shard + 1}});
  }
  return tensors;
}

}  // namespace

std::string describe_json(const GgufFile& file) {
  json::array paths;
  for (const std::string& path : file.shard_paths()) paths.emplace_back(valid_utf8(path));
  json::object root;
  root["files"] = std::move(paths);
  root["version"] = file.version();
  root["alignment"] = file.alignment();
  root["data_offset"] = file.data_offset();
  root["bytes"] = file.total_bytes();
  root["fingerprint"] = file.fingerprint();
  root["metadata"] = metadata_json(file);
  root["types"] = totals_json(file);
  root["tensors"] = tensors_json(file);
  return json::serialize(root);
}

}  // namespace strata::gguf
