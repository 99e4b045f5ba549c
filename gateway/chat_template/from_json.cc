#include "gateway/chat_template/from_json.h"

namespace strata::chat_template {
namespace {

// Of a number, a bracket or a separator; also pays for the object that a value becomes.
constexpr uint64_t kBytesPerValue = 64;

Value string_value(const boost::json::string& text, Origin origin) {
  return Value::string(MarkedText(std::string_view(text.data(), text.size()), origin));
}

}  // namespace

Value from_json(Heap& heap, Budget& budget, const boost::json::value& json, Origin origin) {
  const DepthGuard guard(budget);
  switch (json.kind()) {
    case boost::json::kind::null:
      return {None{}, origin};
    case boost::json::kind::bool_:
      return Value::boolean(json.get_bool(), origin);
    case boost::json::kind::int64:
      return Value::integer(json.get_int64(), origin);
    case boost::json::kind::uint64:
      return Value::integer(json.get_uint64(), origin);
    case boost::json::kind::double_:
      return Value::number(json.get_double(), origin);
    case boost::json::kind::string:
      return string_value(json.get_string(), origin);
    case boost::json::kind::array: {
      std::vector<Value> items;
      for (const auto& item : json.get_array()) items.push_back(from_json(heap, budget, item, origin));
      return heap.sequence(Sequence::Kind::kList, std::move(items), origin);
    }
    case boost::json::kind::object:
      break;
  }
  auto* dict = heap.make<Dict>();
  for (const auto& member : json.get_object()) {
    const std::string_view key(member.key().data(), member.key().size());
    dict->set(Value::string(MarkedText(key, origin)), from_json(heap, budget, member.value(), origin));
  }
  return {dict, origin};
}

uint64_t json_bytes(const boost::json::value& json, uint32_t depth) {
  uint64_t bytes = kBytesPerValue;
  if (depth > kDepthMax) return bytes;  // from_json refuses it
  if (const auto* text = json.if_string()) bytes += text->size();
  if (const auto* array = json.if_array()) {
    for (const auto& item : *array) bytes += json_bytes(item, depth + 1);
  }
  if (const auto* object = json.if_object()) {
    for (const auto& member : *object) bytes += member.key().size() + json_bytes(member.value(), depth + 1);
  }
  return bytes;
}

}  // namespace strata::chat_template
