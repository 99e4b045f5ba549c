#include "gateway/api/json_text.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/string.hpp>
#include <charconv>
#include <cmath>

#include "gateway/api/utf8.h"

namespace strata::gateway {

namespace {

constexpr std::size_t kSnippetCharactersMax = 64;

template <class Number>
void append_number(std::string& out, Number value) {
  char digits[64];
  auto end = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end.ptr);
}

void append_value(std::string& out, const boost::json::value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      out += "null";
      return;
    case boost::json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      return;
    case boost::json::kind::int64:
      append_number(out, value.get_int64());
      return;
    case boost::json::kind::uint64:
      append_number(out, value.get_uint64());
      return;
    case boost::json::kind::double_:
      // JSON has no infinity; none of our numbers should ever be one.
      if (std::isfinite(value.get_double())) {
        append_number(out, value.get_double());
      } else {
        out += "null";
      }
      return;
    case boost::json::kind::string:
      append_json_string(out, value.get_string());
      return;
    case boost::json::kind::array: {
      out += '[';
      bool first = true;
      for (const auto& element : value.get_array()) {
        if (!first) out += ',';
        first = false;
        append_value(out, element);
      }
      out += ']';
      return;
    }
    case boost::json::kind::object: {
      out += '{';
      bool first = true;
      for (const auto& member : value.get_object()) {
        if (!first) out += ',';
        first = false;
        append_json_string(out, member.key());
        out += ':';
        append_value(out, member.value());
      }
      out += '}';
      return;
    }
  }
}

}  // namespace

ApiResult<boost::json::object> parse_body(std::string_view body) {
  boost::json::parse_options options;
  options.max_depth = kJsonDepthMax;
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(body, error, {}, options);
  if (error) {
    return tl::unexpected(invalid_request(fmt::format("the body is not valid JSON: {}", error.message())));
  }
  if (!value.is_object()) {
    return tl::unexpected(
        invalid_request(fmt::format("the body must be a JSON object, got {}", describe(value))));
  }
  return std::move(value.get_object());
}

std::string to_json(const boost::json::value& value) {
  std::string out;
  append_value(out, value);
  return out;
}

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (const auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte == 0x7f) {
          out += "\\u00";
          out += kHex[byte >> 4];
          out += kHex[byte & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

std::string number_text(double value) {
  std::string out;
  append_number(out, value);
  return out;
}

std::string number_text(float value) {
  std::string out;
  append_number(out, value);
  return out;
}

std::string snippet(std::string_view raw) {
  const std::string text = to_valid_utf8(raw);  // paths and headers may hold any bytes
  std::size_t end = 0, characters = 0;
  while (end < text.size() && characters < kSnippetCharactersMax) {
    ++end;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
    ++characters;
  }
  std::string out;
  append_json_string(out, std::string_view(text).substr(0, end));
  if (end < text.size()) out += "...";
  return out;
}

std::string describe(const boost::json::value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::string:
      return "the string " + snippet(value.get_string());
    case boost::json::kind::array:
      return value.get_array().empty() ? "an empty array" : "an array";
    case boost::json::kind::object:
      return "an object";
    default:
      return to_json(value);
  }
}

}  // namespace strata::gateway
