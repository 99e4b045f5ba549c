#include "gateway/api/messages.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <boost/json/string.hpp>

#include "gateway/api/field_reader.h"
#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";
constexpr std::string_view kOmittedImage = "[image omitted]";

struct Part {
  std::string text = {};
  bool image = false;
};

ApiResult<Part> read_part(const boost::json::value& value, const std::string& where) {
  if (!value.is_object()) {
    return tl::unexpected(
        invalid_request(fmt::format("{} must be an object, got {}", where, describe(value)), where));
  }
  FieldReader fields(value.get_object(), where + ".");
  std::string_view type = fields.string("type").value_or("");
  Part part;
  if (type == "text" || type == "input_text" || type == "output_text") {
    auto text = fields.string("text");
    if (!text) fields.fail("text", fmt::format("{}.text is missing", where));
    part.text = text.value_or("");
  } else if (type == "refusal") {
    part.text = fields.string("refusal").value_or("");
  } else if (type == "image_url" || type == "input_image" || type == "image") {
    part = {.text = std::string(kOmittedImage), .image = true};
  } else {
    fields.fail("type", fmt::format("{}.type: {} is not supported; expected \"text\"", where, snippet(type)));
  }
  if (fields.failed()) return fields.error();
  return part;
}

struct Content {
  std::string text = {};
  bool present = false;
  bool has_image = false;
};

// A string, null, nothing, or parts, which are put together without a separator.
ApiResult<Content> read_content(const boost::json::object& message, const std::string& where) {
  const boost::json::value* value = message.if_contains("content");
  if (value == nullptr || value->is_null()) return Content{};
  if (value->is_string()) return Content{.text = std::string(value->get_string()), .present = true};
  const std::string place = where + ".content";
  if (!value->is_array()) {
    return tl::unexpected(invalid_request(
        fmt::format("{} must be a string or an array of parts, got {}", place, describe(*value)), place));
  }
  Content content{.present = true};
  std::size_t index = 0;
  for (const auto& element : value->get_array()) {
    auto part = read_part(element, fmt::format("{}[{}]", place, index++));
    if (!part) return tl::unexpected(std::move(part).error());
    content.text += part->text;
    content.has_image |= part->image;
  }
  return content;
}

ApiResult<boost::json::object> read_call(const boost::json::object& function, const std::string& where) {
  FieldReader fields(function, where + ".");
  auto name = fields.string("name");
  if (!fields.failed() && (!name || name->empty()))
    fields.fail("name", fmt::format("{}.name is missing", where));
  if (fields.failed()) return fields.error();
  boost::json::object call;
  call["name"] = *name;
  const boost::json::value* arguments = fields.find("arguments");
  if (arguments == nullptr) {
    call["arguments"] = boost::json::object();
  } else if (arguments->is_object()) {
    call["arguments"] = *arguments;
  } else if (arguments->is_string()) {
    auto parsed = parse_body(arguments->get_string());
    // Templates of some models walk through the arguments, so they get an object whenever the text is one.
    call["arguments"] = parsed ? boost::json::value(std::move(*parsed)) : *arguments;
  } else {
    fields.fail("arguments",
                fmt::format("{}.arguments must be a string, got {}", where, describe(*arguments)));
    return fields.error();
  }
  return call;
}

ApiResult<boost::json::array> read_tool_calls(const boost::json::object& message, const std::string& where) {
  boost::json::array calls;
  auto add = [&calls](boost::json::value id, boost::json::object function) {
    boost::json::object call;
    call["id"] = std::move(id);
    call["type"] = "function";
    call["function"] = std::move(function);
    calls.push_back(std::move(call));
  };
  FieldReader fields(message, where + ".");
  if (const auto* legacy = fields.object("function_call")) {
    auto function = read_call(*legacy, where + ".function_call");
    if (!function) return tl::unexpected(std::move(function).error());
    add("", std::move(*function));
  }
  const boost::json::value* list = fields.find("tool_calls");
  if (list != nullptr && !list->is_array()) {
    fields.fail("tool_calls", fmt::format("{}.tool_calls must be an array, got {}", where, describe(*list)));
  }
  if (fields.failed()) return fields.error();
  if (list == nullptr) return calls;
  for (std::size_t i = 0; i < list->get_array().size(); ++i) {
    const std::string place = fmt::format("{}.tool_calls[{}]", where, i);
    const boost::json::value& element = list->get_array()[i];
    if (!element.is_object()) {
      return tl::unexpected(
          invalid_request(fmt::format("{} must be an object, got {}", place, describe(element)), place));
    }
    FieldReader call(element.get_object(), place + ".");
    auto id = call.string("id").value_or("");
    const auto* function = call.object("function");
    if (!call.failed() && function == nullptr)
      call.fail("function", fmt::format("{}.function is missing", place));
    if (call.failed()) return call.error();
    auto read = read_call(*function, place + ".function");
    if (!read) return tl::unexpected(std::move(read).error());
    add(boost::json::value(id), std::move(*read));
  }
  return calls;
}

// Some agents put a line into the system prompt that changes with every request; it would spoil every prefix
// (rule B11).
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

std::string_view internal_role(std::string_view role) {
  if (role == "developer") return "system";
  if (role == "function") return "tool";
  return role;
}

struct Normalised {
  boost::json::object message;
  bool empty_assistant = false;
  bool has_image = false;
};

ApiResult<Normalised> normalise(const boost::json::object& message, const std::string& where) {
  FieldReader fields(message, where + ".");
  auto given_role = fields.string("role");
  auto name = fields.string("name");
  auto reasoning = fields.string("reasoning_content");
  auto tool_call_id = fields.string("tool_call_id");
  if (!fields.failed() && !given_role) fields.fail("role", fmt::format("{}.role is missing", where));
  if (fields.failed()) return fields.error();
  const std::string_view role = internal_role(*given_role);
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    fields.fail("role",
                fmt::format("{}.role must be system, developer, user, assistant, tool or function, got {}",
                            where, snippet(*given_role)));
    return fields.error();
  }
  auto content = read_content(message, where);
  if (!content) return tl::unexpected(std::move(content).error());
  if (!content->present && (role == "user" || role == "system")) {
    fields.fail("content", fmt::format("{}.content is missing", where));
    return fields.error();
  }

  Normalised out;
  out.has_image = content->has_image;
  out.message["role"] = role;
  out.message["content"] = role == "system" ? without_billing_lines(content->text) : content->text;
  if (name) out.message["name"] = *name;
  if (role == "tool" && tool_call_id) out.message["tool_call_id"] = *tool_call_id;
  if (role != "assistant") return out;
  if (reasoning) out.message["reasoning_content"] = *reasoning;
  auto calls = read_tool_calls(message, where);
  if (!calls) return tl::unexpected(std::move(calls).error());
  out.empty_assistant = calls->empty() && content->text.empty();
  if (!calls->empty()) out.message["tool_calls"] = std::move(*calls);
  return out;
}

}  // namespace

ApiResult<Messages> normalise_messages(const boost::json::value* value) {
  if (value == nullptr || value->is_null())
    return tl::unexpected(invalid_request("messages is missing", "messages"));
  if (!value->is_array()) {
    return tl::unexpected(invalid_request(
        fmt::format("messages must be an array of messages, got {}", describe(*value)), "messages"));
  }
  const boost::json::array& list = value->get_array();
  Messages messages;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    if (!list[i].is_object()) {
      return tl::unexpected(
          invalid_request(fmt::format("{} must be an object, got {}", where, describe(list[i])), where));
    }
    auto one = normalise(list[i].get_object(), where);
    if (!one) return tl::unexpected(std::move(one).error());
    // A finished empty turn would teach the model to answer with nothing (rule A8).
    if (one->empty_assistant) continue;
    // An image in an old turn must not make every later turn fail (rule B17); the newest question needs its
    // image.
    if (one->has_image && i + 1 == list.size()) {
      return tl::unexpected(invalid_request("images are not supported by this version", where + ".content"));
    }
    messages.list.push_back(std::move(one->message));
  }
  if (messages.list.empty())
    return tl::unexpected(invalid_request("messages must hold at least one message", "messages"));
  const boost::json::object& last = messages.list.back().get_object();
  messages.continues_answer = last.at("role") == "assistant" && !last.contains("tool_calls");
  return messages;
}

}  // namespace strata::gateway
