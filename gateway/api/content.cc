#include "gateway/api/content.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>

#include "gateway/api/field_reader.h"
#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

}  // namespace

ApiResult<Content> read_part(const boost::json::value& value, const std::string& where, ContentRules rules) {
  if (!value.is_object()) {
    return tl::unexpected(
        invalid_request(fmt::format("{} must be an object, got {}", where, describe(value)), where));
  }
  FieldReader fields(value.get_object(), where + ".");
  std::string_view type = fields.string("type").value_or("");
  Content part{.present = true};
  if (type == "text" || type == "input_text" || type == "output_text") {
    auto text = fields.string("text");
    if (!text) fields.fail("text", fmt::format("{}.text is missing", where));
    part.text = text.value_or("");
  } else if (type == "refusal") {
    part.text = fields.string("refusal").value_or("");
  } else if (type == "image_url" || type == "input_image" || type == "image") {
    part.text = "[image omitted]";
    part.has_image = true;
  } else if (rules.unknown_parts_become_notes && !type.empty()) {
    part.text = fmt::format("[{} omitted]", type);
  } else {
    fields.fail("type", fmt::format("{}.type: {} is not supported; expected \"text\"", where, snippet(type)));
  }
  if (fields.failed()) return fields.error();
  return part;
}

ApiResult<Content> read_content(const boost::json::value* value, const std::string& where,
                                ContentRules rules) {
  if (value == nullptr || value->is_null()) return Content{};
  if (value->is_string()) return Content{.text = std::string(value->get_string()), .present = true};
  if (!value->is_array()) {
    return tl::unexpected(invalid_request(
        fmt::format("{} must be a string or an array of parts, got {}", where, describe(*value)), where));
  }
  Content content{.present = true};
  std::size_t index = 0;
  for (const auto& element : value->get_array()) {
    auto part = read_part(element, fmt::format("{}[{}]", where, index++), rules);
    if (!part) return tl::unexpected(std::move(part).error());
    content.text += part->text;
    content.has_image |= part->has_image;
  }
  return content;
}

std::string without_billing_lines(const std::string& text) {
  if (text.find(kBillingHeader) == std::string::npos) return text;
  std::string out;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find('\n', begin);
    end = end == std::string::npos ? text.size() : end + 1;
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (!line.starts_with(kBillingHeader)) out += line;
    begin = end;
  }
  return out;
}

}  // namespace strata::gateway
