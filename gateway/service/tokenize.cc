#include "gateway/service/tokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/string.hpp>
#include <iterator>
#include <optional>
#include <vector>

#include "gateway/api/field_reader.h"
#include "gateway/api/json_text.h"
#include "gateway/api/utf8.h"

namespace strata::gateway {

namespace {

using tokenizer::Tokenizer;

std::optional<int32_t> token_id(const Tokenizer& tokenizer, const boost::json::value& value) {
  const auto number = value.is_number() ? whole_number(value) : std::nullopt;
  if (!number || *number < 0 || *number >= static_cast<int64_t>(tokenizer.vocab_size())) return {};
  return static_cast<int32_t>(*number);
}

ApiError no_token(const Tokenizer& tokenizer, std::string_view where, const boost::json::value& value) {
  return invalid_request(
      fmt::format("{} must hold token ids below {}, got {}", where, tokenizer.vocab_size(), describe(value)),
      std::string(where));
}

ApiResult<std::vector<int32_t>> read_tokens(const Tokenizer& tokenizer, const boost::json::value& content,
                                            bool parse_special) {
  std::vector<int32_t> out;
  const auto add_text = [&](std::string_view text) {
    const auto tokens = parse_special ? tokenizer.encode_trusted(text) : tokenizer.encode_untrusted(text);
    out.insert(out.end(), tokens.begin(), tokens.end());
  };
  if (content.is_string()) {
    add_text(content.get_string());
    return out;
  }
  if (!content.is_array()) {
    return tl::unexpected(invalid_request(
        fmt::format("content must be a string or an array, got {}", describe(content)), "content"));
  }
  for (const auto& element : content.get_array()) {
    if (element.is_string()) {
      add_text(element.get_string());
    } else if (const auto id = token_id(tokenizer, element)) {
      out.push_back(*id);
    } else {
      return tl::unexpected(no_token(tokenizer, "content", element));
    }
  }
  return out;
}

// Half a character is no text.
boost::json::value piece_json(std::string_view bytes) {
  if (to_valid_utf8(bytes) == bytes) return boost::json::value(bytes);
  boost::json::array values;
  for (const char byte : bytes) values.push_back(static_cast<unsigned char>(byte));
  return values;
}

}  // namespace

ApiResult<std::string> tokenize(const Tokenizer& tokenizer, const boost::json::object& body) {
  FieldReader fields(body);
  const bool parse_special = fields.boolean("parse_special").value_or(true);
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  fields.boolean("add_special");
  const boost::json::value* content = fields.find("content");
  if (content == nullptr) fields.fail("content", "content is missing");
  if (fields.failed()) return fields.error();
  auto tokens = read_tokens(tokenizer, *content, parse_special);
  if (!tokens) return tl::unexpected(std::move(tokens).error());
  boost::json::array list;
  for (const int32_t id : *tokens) {
    if (!with_pieces) {
      list.push_back(id);
      continue;
    }
    boost::json::object piece;
    piece["id"] = id;
    piece["piece"] = piece_json(tokenizer.token_bytes(id));
    list.push_back(std::move(piece));
  }
  boost::json::object out;
  out["tokens"] = std::move(list);
  return to_json(out);
}

ApiResult<std::string> detokenize(const Tokenizer& tokenizer, const boost::json::object& body) {
  const boost::json::value* list = FieldReader(body).find("tokens");
  if (list == nullptr || !list->is_array())
    return tl::unexpected(invalid_request("tokens must be an array of token ids", "tokens"));
  std::vector<int32_t> tokens;
  for (const auto& element : list->get_array()) {
    const auto id = token_id(tokenizer, element);
    if (!id) return tl::unexpected(no_token(tokenizer, "tokens", element));
    tokens.push_back(*id);
  }
  boost::json::object out;
  out["content"] = tokenizer.decode(tokens);
  return to_json(out);
}

}  // namespace strata::gateway
