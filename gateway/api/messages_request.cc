#include "gateway/api/messages_request.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/string.hpp>
#include <limits>

#include "gateway/api/content.h"
#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

constexpr uint32_t kStopSequencesMax = 64;

boost::json::object plain_message(std::string_view role, std::string_view content) {
  boost::json::object out;
  out["role"] = role;
  out["content"] = content;
  return out;
}

// A string or blocks; these are paragraphs. A line of billing is dropped with its block's line only, so
// before the blocks are put together.
ApiResult<std::string> read_system(const boost::json::value* value) {
  if (value == nullptr || value->is_null()) return std::string();
  if (!value->is_array()) {
    auto content = read_content(value, "system");
    if (!content) return tl::unexpected(std::move(content).error());
    return without_billing_lines(content->text);
  }
  std::string out;
  std::size_t index = 0;
  for (const auto& block : value->get_array()) {
    auto part = read_part(block, fmt::format("system[{}]", index++));
    if (!part) return tl::unexpected(std::move(part).error());
    const std::string text = without_billing_lines(part->text);
    if (!text.empty() && !out.empty()) out += "\n\n";
    out += text;
  }
  return out;
}

// One message of the dialect, which may become several: results of tools are messages of their own.
class MessageReader {
 public:
  MessageReader(const boost::json::object& message, std::string where)
      : fields_(message, where + "."), where_(std::move(where)) {}

  // Appends to `list`. True: there was an image.
  ApiResult<bool> read(boost::json::array& list) {
    auto role = fields_.string("role");
    if (!fields_.failed() && !role) fields_.fail("role", fmt::format("{}.role is missing", where_));
    if (fields_.failed()) return fields_.error();
    const boost::json::value* content = fields_.find("content");
    if (*role != "user" && *role != "assistant" && *role != "system") {
      fields_.fail("role", fmt::format("{}.role must be user or assistant, got {}", where_, snippet(*role)));
    } else if (content == nullptr) {
      fields_.fail("content", fmt::format("{}.content is missing", where_));
    }
    if (fields_.failed()) return fields_.error();
    if (*role == "assistant") return read_assistant(*content, list);
    return read_user(*role, *content, list);
  }

 private:
  ApiResult<bool> read_user(std::string_view role, const boost::json::value& content,
                            boost::json::array& list) {
    const std::string place = where_ + ".content";
    if (!content.is_array()) {
      auto text = read_content(&content, place);
      if (!text) return tl::unexpected(std::move(text).error());
      list.push_back(plain_message(role, text->text));
      return false;
    }
    bool image = false, has_text = false;
    std::string text;
    auto flush = [&] {
      if (has_text) list.push_back(plain_message(role, text));
      has_text = false;
      text.clear();
    };
    const boost::json::array& blocks = content.get_array();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::string at = fmt::format("{}[{}]", place, i);
      if (is_type(blocks[i], "tool_result")) {
        flush();
        auto result = read_result(blocks[i].get_object(), at);
        if (!result) return tl::unexpected(std::move(result).error());
        list.push_back(std::move(*result));
        continue;
      }
      auto part = read_part(blocks[i], at);
      if (!part) return tl::unexpected(std::move(part).error());
      text += part->text;
      has_text = true;
      image |= part->has_image;
    }
    if (blocks.empty()) has_text = true;
    flush();
    return image;
  }

  static ApiResult<boost::json::object> read_result(const boost::json::object& block, const std::string& at) {
    FieldReader fields(block, at + ".");
    const std::string_view id = fields.string("tool_use_id").value_or("");
    fields.boolean("is_error");
    if (fields.failed()) return fields.error();
    auto content =
        read_content(fields.find("content"), at + ".content", {.unknown_parts_become_notes = true});
    if (!content) return tl::unexpected(std::move(content).error());
    boost::json::object out = plain_message("tool", content->text);
    out["tool_call_id"] = id;
    return out;
  }

  ApiResult<bool> read_assistant(const boost::json::value& content, boost::json::array& list) {
    const std::string place = where_ + ".content";
    std::string text, thinking;
    boost::json::array calls;
    if (!content.is_array()) {
      auto said = read_content(&content, place);
      if (!said) return tl::unexpected(std::move(said).error());
      text = std::move(said->text);
    } else {
      const boost::json::array& blocks = content.get_array();
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        auto fault = read_block(blocks[i], fmt::format("{}[{}]", place, i), text, thinking, calls);
        if (fault) return tl::unexpected(std::move(*fault));
      }
    }
    // A finished empty turn would teach the model to answer with nothing (rule A8).
    if (text.empty() && calls.empty()) return false;
    boost::json::object out = plain_message("assistant", text);
    if (!thinking.empty()) out["reasoning_content"] = thinking;
    if (!calls.empty()) out["tool_calls"] = std::move(calls);
    list.push_back(std::move(out));
    return false;
  }

  static std::optional<ApiError> read_block(const boost::json::value& block, const std::string& at,
                                            std::string& text, std::string& thinking,
                                            boost::json::array& calls) {
    if (is_type(block, "redacted_thinking")) return {};
    if (is_type(block, "thinking")) {
      FieldReader fields(block.get_object(), at + ".");
      thinking += fields.string("thinking").value_or("");
      if (fields.failed()) return fields.error().value();
      return {};
    }
    if (is_type(block, "tool_use")) return read_use(block.get_object(), at, calls);
    auto part = read_part(block, at);
    if (!part) return std::move(part).error();
    text += part->text;
    return {};
  }

  static std::optional<ApiError> read_use(const boost::json::object& block, const std::string& at,
                                          boost::json::array& calls) {
    FieldReader fields(block, at + ".");
    const std::string_view id = fields.string("id").value_or(""), name = fields.string("name").value_or("");
    const boost::json::object* input = fields.object("input");
    if (name.empty()) fields.fail("name", fmt::format("{}.name is missing", at));
    if (fields.failed()) return fields.error().value();
    boost::json::object function, call;
    function["name"] = name;
    function["arguments"] = input == nullptr ? boost::json::object() : *input;
    call["id"] = id;
    call["type"] = "function";
    call["function"] = std::move(function);
    calls.push_back(std::move(call));
    return {};
  }

  static bool is_type(const boost::json::value& block, std::string_view type) {
    if (!block.is_object()) return false;
    const boost::json::value* given = block.get_object().if_contains("type");
    return given != nullptr && given->is_string() && given->get_string() == type;
  }

  FieldReader fields_;
  std::string where_;
};

ApiResult<Messages> read_messages(const boost::json::object& body) {
  FieldReader fields(body);
  auto system = read_system(fields.find("system"));
  if (!system) return tl::unexpected(std::move(system).error());
  const boost::json::value* list = fields.find("messages");
  if (list == nullptr || !list->is_array()) {
    return tl::unexpected(
        invalid_request("messages is missing or no array; expected an array of messages", "messages"));
  }
  Messages out;
  if (!system->empty()) out.list.push_back(plain_message("system", *system));
  const boost::json::array& given = list->get_array();
  const std::size_t without_messages = out.list.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    if (!given[i].is_object()) {
      return tl::unexpected(
          invalid_request(fmt::format("{} must be an object, got {}", where, describe(given[i])), where));
    }
    auto image = MessageReader(given[i].get_object(), where).read(out.list);
    if (!image) return tl::unexpected(std::move(image).error());
    if (*image && i + 1 == given.size()) return tl::unexpected(image_refused(where + ".content"));
  }
  if (out.list.size() == without_messages)
    return tl::unexpected(invalid_request("messages must hold at least one message", "messages"));
  out.continues_answer = ends_in_open_answer(out.list);
  return out;
}

}  // namespace

ApiResult<ChatRequest> parse_messages_request(const boost::json::object& body, uint32_t vocab,
                                              MessagesUse use) {
  FieldReader fields(body);
  ChatRequest request;
  CommonFields& common = request.common;
  common.model = fields.string("model").value_or("");
  common.stream = fields.boolean("stream").value_or(false);
  common.schedule = read_schedule_fields(fields);
  common.sampling = read_sampling_fields(fields, vocab);
  common.stop = read_stop_strings(fields, "stop_sequences", kStopSequencesMax);
  if (auto cap = fields.integer("max_tokens", 1, std::numeric_limits<int32_t>::max())) {
    common.max_tokens = static_cast<uint32_t>(*cap);
  } else if (use == MessagesUse::kGenerate && !fields.failed()) {
    fields.fail("max_tokens", "max_tokens is missing");
  }
  request.tools = read_message_tools(fields);
  request.thinking = read_message_thinking(fields);
  request.form = read_message_form(fields);
  if (fields.failed()) return fields.error();
  auto messages = read_messages(body);
  if (!messages) return tl::unexpected(std::move(messages).error());
  request.messages = std::move(*messages);
  return request;
}

}  // namespace strata::gateway
