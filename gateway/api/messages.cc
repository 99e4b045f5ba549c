#include "gateway/api/messages.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <boost/json/string.hpp>

#include "gateway/api/content.h"
#include "gateway/api/field_reader.h"
#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

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
  // What a tool gives is not the user's doing: a kind of part that is not text becomes a note there (rule
  // B9).
  auto content = read_content(message.if_contains("content"), where + ".content",
                              {.unknown_parts_become_notes = role == "tool"});
  if (!content) return tl::unexpected(std::move(content).error());
  if (!content->present && (role == "user" || role == "system")) {
    fields.fail("content", fmt::format("{}.content is missing", where));
    return fields.error();
  }

  Normalised out;
  out.has_image = content->has_image && role != "tool";
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

ApiError image_refused(std::string where) {
  return invalid_request(where + ": images are not supported by this version", where);
}

bool ends_in_open_answer(const boost::json::array& list) {
  const boost::json::object& last = list.back().get_object();
  return last.at("role") == "assistant" && !last.contains("tool_calls");
}

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
      return tl::unexpected(image_refused(where + ".content"));
    }
    messages.list.push_back(std::move(one->message));
  }
  if (messages.list.empty())
    return tl::unexpected(invalid_request("messages must hold at least one message", "messages"));
  messages.continues_answer = ends_in_open_answer(messages.list);
  return messages;
}

}  // namespace strata::gateway
