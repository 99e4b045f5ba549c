#include "gateway/api/response_items.h"

#include <fmt/format.h>

#include <boost/json/string.hpp>
#include <optional>

#include "gateway/api/content.h"
#include "gateway/api/json_text.h"
#include "gateway/api/response_tools.h"

namespace strata::gateway {

namespace {

constexpr std::string_view kSeal = "strata-text:";

std::string_view id_kind(std::string_view type) {
  if (type == "reasoning") return "rs";
  if (type == "function_call") return "fc";
  if (type == "custom_tool_call") return "ctc";
  if (type.ends_with("_output")) return "out";
  return "msg";
}

boost::json::array text_parts(std::string_view role, std::string_view text) {
  boost::json::object part;
  part["type"] = role == "assistant" ? "output_text" : "input_text";
  part["text"] = text;
  if (role == "assistant") part["annotations"] = boost::json::array();
  boost::json::array parts;
  parts.push_back(std::move(part));
  return parts;
}

// Calls of tools that only their own service runs, and what came of them. Clients that have used another
// server send them along.
bool is_hosted(std::string_view type) {
  return type.ends_with("_call") || type.ends_with("_output") || type.starts_with("mcp_") ||
         type == "compaction";
}

std::string_view text_of(const boost::json::object& item, std::string_view name) {
  const boost::json::value* value = item.if_contains(name);
  if (value == nullptr || !value->is_string()) return {};
  return value->get_string();
}

bool is_reference(const boost::json::object& item) { return text_of(item, "type") == "item_reference"; }

boost::json::object message(std::string_view role, std::string_view content) {
  boost::json::object out;
  out["role"] = role;
  out["content"] = content;
  return out;
}

class MessageMaker {
 public:
  ApiResult<ItemMessages> make(std::string_view instructions, const boost::json::array& past,
                               const boost::json::array& input) {
    if (!instructions.empty())
      out_.messages.list.push_back(message("system", without_billing_lines(std::string(instructions))));
    for (const auto& item : past) {
      // They were checked when they came; what is wrong with them now is still told.
      if (auto error = add(item.get_object(), "previous_response_id"))
        return tl::unexpected(std::move(*error));
    }
    std::size_t place = 0;
    for (const auto& item : input) {
      const std::string where = fmt::format("input[{}]", place++);
      last_ = place == input.size();
      if (auto error = add(item.get_object(), where)) return tl::unexpected(std::move(*error));
    }
    close_turn();
    if (out_.messages.list.empty())
      return tl::unexpected(invalid_request("input must hold at least one message", "input"));
    out_.messages.continues_answer = ends_in_open_answer(out_.messages.list);
    return std::move(out_);
  }

 private:
  using Fault = std::optional<ApiError>;

  Fault add(const boost::json::object& item, const std::string& where) {
    const std::string_view type = text_of(item, "type");
    if (type == "message") return add_message(item, where);
    if (type == "reasoning") return add_reasoning(item, where);
    if (type == "function_call" || type == "custom_tool_call") return add_call(item, type, where);
    if (type == "function_call_output" || type == "custom_tool_call_output") return add_output(item, where);
    if (is_hosted(type)) {
      out_.warnings.push_back(fmt::format("{}: items of the type {} are left out", where, type));
      return {};
    }
    return invalid_request(fmt::format("{}.type: {} is not supported", where, snippet(type)),
                           where + ".type");
  }

  Fault add_message(const boost::json::object& item, const std::string& where) {
    const std::string_view given = text_of(item, "role");
    const std::string_view role = given == "developer" ? "system" : given;
    if (role != "user" && role != "system" && role != "assistant") {
      return invalid_request(
          fmt::format("{}.role must be user, assistant, system or developer, got {}", where, snippet(given)),
          where + ".role");
    }
    auto content = read_content(item.if_contains("content"), where + ".content");
    if (!content) return std::move(content).error();
    if (!content->present)
      return invalid_request(fmt::format("{}.content is missing", where), where + ".content");
    // An image in an old turn must not make every later turn fail (rule B17).
    if (content->has_image && last_) return image_refused(where + ".content");
    if (role == "assistant") {
      if (!turn_.text.empty() || !turn_.calls.empty()) close_turn();
      turn_.text = std::move(content->text);
      return {};
    }
    close_turn();
    boost::json::array& list = out_.messages.list;
    std::string text = role == "system" ? without_billing_lines(content->text) : std::move(content->text);
    // Templates know one system message, at the beginning.
    if (role == "system" && list.size() == 1 && list.front().at("role") == "system") {
      list.front().get_object()["content"] =
          fmt::format("{}\n\n{}", std::string_view(list.front().at("content").get_string()), text);
    } else {
      list.push_back(message(role, text));
    }
    return {};
  }

  // The whole text if it is there, else what only we can read, else the summary.
  Fault add_reasoning(const boost::json::object& item, const std::string& where) {
    auto content = read_reasoning(item, "content", where);
    if (!content) return std::move(content).error();
    auto summary = read_reasoning(item, "summary", where);
    if (!summary) return std::move(summary).error();
    std::string text = std::move(*content);
    const std::string_view sealed = text_of(item, "encrypted_content");
    if (text.empty() && sealed.starts_with(kSeal)) text = sealed.substr(kSeal.size());
    if (text.empty() && sealed.empty()) text = std::move(*summary);
    if (!turn_.text.empty() || !turn_.calls.empty()) close_turn();
    turn_.reasoning += text;
    return {};
  }

  static ApiResult<std::string> read_reasoning(const boost::json::object& item, std::string_view name,
                                               const std::string& where) {
    const boost::json::value* list = item.if_contains(name);
    if (list == nullptr || list->is_null()) return std::string();
    const std::string place = fmt::format("{}.{}", where, name);
    if (!list->is_array()) {
      return tl::unexpected(
          invalid_request(fmt::format("{} must be an array, got {}", place, describe(*list)), place));
    }
    std::string out;
    for (const auto& part : list->get_array()) {
      if (!part.is_object())
        return tl::unexpected(
            invalid_request(fmt::format("{} must hold objects, got {}", place, describe(part)), place));
      out += text_of(part.get_object(), "text");
    }
    return out;
  }

  Fault add_call(const boost::json::object& item, std::string_view type, const std::string& where) {
    FieldReader fields(item, where + ".");
    const std::string_view name = fields.string("name").value_or("");
    const std::string_view id = fields.string("call_id").value_or("");
    const std::string_view space = fields.string("namespace").value_or("");
    const std::string_view given =
        fields.string(type == "function_call" ? "arguments" : "input").value_or("");
    if (!fields.failed() && name.empty()) fields.fail("name", fmt::format("{}.name is missing", where));
    if (fields.failed()) return fields.error().value();
    // One that the cap cut off is no call (rule B24).
    if (text_of(item, "status") == "incomplete") return {};
    boost::json::object function, call;
    function["name"] = model_tool_name(space, name);
    if (type == "custom_tool_call") {
      function["arguments"] = boost::json::object{{kFreeFormParameter, given}};
    } else if (auto parsed = parse_body(given)) {
      // Templates of some models walk through the arguments.
      function["arguments"] = std::move(*parsed);
    } else if (given.empty()) {
      function["arguments"] = boost::json::object();
    } else {
      function["arguments"] = given;
    }
    call["id"] = id;
    call["type"] = "function";
    call["function"] = std::move(function);
    turn_.calls.push_back(std::move(call));
    return {};
  }

  Fault add_output(const boost::json::object& item, const std::string& where) {
    FieldReader fields(item, where + ".");
    const std::string_view id = fields.string("call_id").value_or("");
    if (fields.failed()) return fields.error().value();
    auto content =
        read_content(fields.find("output"), where + ".output", {.unknown_parts_become_notes = true});
    if (!content) return std::move(content).error();
    close_turn();
    boost::json::object out = message("tool", content->text);
    out["tool_call_id"] = id;
    out_.messages.list.push_back(std::move(out));
    return {};
  }

  // A turn without text and calls would teach the model to answer with nothing (rule A8).
  void close_turn() {
    Turn turn = std::exchange(turn_, {});
    if (turn.text.empty() && turn.calls.empty()) return;
    boost::json::object out = message("assistant", turn.text);
    if (!turn.reasoning.empty()) out["reasoning_content"] = turn.reasoning;
    if (!turn.calls.empty()) out["tool_calls"] = std::move(turn.calls);
    out_.messages.list.push_back(std::move(out));
  }

  struct Turn {
    std::string reasoning = {}, text = {};
    boost::json::array calls = {};
  };

  bool last_ = false;  // the item is the newest
  Turn turn_;          // of the assistant, so far
  ItemMessages out_;
};

// An item as it is kept: with type, id and its content as parts.
boost::json::object normalised(const boost::json::object& given, std::string_view serial, std::size_t place) {
  boost::json::object out = given;
  if (text_of(out, "type").empty() && out.contains("role")) out["type"] = "message";
  if (text_of(out, "type").empty() && out.contains("id")) out["type"] = "item_reference";
  const std::string_view type = text_of(out, "type"), role = text_of(out, "role");
  if (is_reference(out)) return out;
  if (text_of(out, "id").empty()) out["id"] = fmt::format("{}_{}_i{}", id_kind(type), serial, place);
  const boost::json::value* content = out.if_contains("content");
  if (type == "message" && content != nullptr && content->is_string()) {
    const std::string text(content->get_string());
    out["content"] = text_parts(role, text);
  }
  if (type != "reasoning" && !out.contains("status")) out["status"] = "completed";
  return out;
}

}  // namespace

ResponseInput read_response_input(FieldReader& fields, std::string_view serial) {
  ResponseInput out;
  const boost::json::value* input = fields.find("input");
  if (input == nullptr) return out;
  if (input->is_string()) {
    out.items.push_back(normalised(message("user", input->get_string()), serial, 0));
    return out;
  }
  if (!input->is_array()) {
    fields.fail("input",
                fmt::format("input must be a string or an array of items, got {}", describe(*input)));
    return out;
  }
  for (const auto& element : input->get_array()) {
    const std::string where = fmt::format("input[{}]", out.items.size());
    if (!element.is_object()) {
      fields.fail(where, fmt::format("{} must be an object, got {}", where, describe(element)));
      return out;
    }
    boost::json::object item = normalised(element.get_object(), serial, out.items.size());
    if (text_of(item, "type").empty()) {
      fields.fail(where + ".type", fmt::format("{}.type is missing", where));
      return out;
    }
    if (is_reference(item)) out.references.emplace_back(text_of(item, "id"));
    out.items.push_back(std::move(item));
  }
  return out;
}

void ResponseInput::resolve(const std::map<std::string, boost::json::object>& referenced) {
  for (boost::json::value& item : items) {
    if (!is_reference(item.get_object())) continue;
    const auto known = referenced.find(std::string(text_of(item.get_object(), "id")));
    if (known != referenced.end()) item = known->second;
  }
}

ApiResult<ItemMessages> response_messages(std::string_view instructions, const boost::json::array& past,
                                          const boost::json::array& input) {
  return MessageMaker().make(instructions, past, input);
}

std::string sealed_reasoning(std::string_view text) { return fmt::format("{}{}", kSeal, text); }

}  // namespace strata::gateway
