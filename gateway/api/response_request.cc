#include "gateway/api/response_request.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/string.hpp>
#include <limits>

#include "gateway/api/json_text.h"
#include "services/base/limits.h"

namespace strata::gateway {

namespace {

constexpr std::size_t kMetadataMax = 16;

// Repeated as they came, null where they did not.
constexpr std::string_view kRepeated[] = {"instructions",     "max_output_tokens", "max_tool_calls",
                                          "prompt_cache_key", "safety_identifier", "user"};

// Parts of the API that would change the answer, so they are not overlooked.
void refuse_unsupported(FieldReader& fields) {
  if (fields.boolean("background").value_or(false))
    fields.fail("background", "background is not supported: responses are made while the client waits");
  for (std::string_view name : {"conversation", "prompt"}) {
    if (fields.find(name) != nullptr)
      fields.fail(name, fmt::format("{} is not supported by this server", name));
  }
  const std::string_view truncation = fields.string("truncation").value_or("disabled");
  if (truncation != "disabled" && truncation != "auto")
    fields.fail("truncation",
                fmt::format("truncation must be \"disabled\" or \"auto\", got {}", snippet(truncation)));
}

// Names the log probabilities and the reasoning in the form that can be sent back.
struct Included {
  bool logprobs = false;
  bool reasoning = false;
};

Included read_include(FieldReader& fields) {
  Included out;
  const boost::json::value* list = fields.find("include");
  if (list == nullptr) return out;
  if (!list->is_array()) {
    fields.fail("include", fmt::format("include must be an array of strings, got {}", describe(*list)));
    return out;
  }
  for (const auto& element : list->get_array()) {
    if (!element.is_string()) {
      fields.fail("include",
                  fmt::format("include must be an array of strings, got {} in it", describe(element)));
      return out;
    }
    out.logprobs |= element.get_string() == "message.output_text.logprobs";
    out.reasoning |= element.get_string() == "reasoning.encrypted_content";
  }
  return out;
}

boost::json::object read_metadata(FieldReader& fields) {
  const boost::json::object* metadata = fields.object("metadata");
  if (metadata == nullptr) return {};
  if (metadata->size() > kMetadataMax)
    fields.fail("metadata",
                fmt::format("metadata may hold at most {} members, got {}", kMetadataMax, metadata->size()));
  for (const auto& member : *metadata) {
    if (!member.value().is_string())
      fields.fail("metadata", fmt::format("metadata.{} must be a string, got {}", snippet(member.key()),
                                          describe(member.value())));
  }
  return *metadata;
}

// text: {"format": {...}, "verbosity": ...}
AnswerForm read_text(FieldReader& fields) {
  const boost::json::object* text = fields.object("text");
  if (text == nullptr) return {};
  FieldReader nested(*text, "text.");
  AnswerForm form = read_format(nested, "format");
  if (nested.failed()) fields.fail(nested.error().value());
  return form;
}

boost::json::value given_or(FieldReader& fields, std::string_view name, boost::json::value otherwise) {
  const boost::json::value* value = fields.find(name);
  return value == nullptr ? std::move(otherwise) : *value;
}

boost::json::object repeated(FieldReader& fields, const ResponseRequest& request) {
  boost::json::object out, format, text;
  for (std::string_view name : kRepeated) out[name] = given_or(fields, name, nullptr);
  format["type"] = "text";
  text["format"] = std::move(format);
  if (const auto* given = fields.object("text")) {
    for (const auto& member : *given) text[member.key()] = member.value();
  }
  boost::json::object reasoning{{"effort", nullptr}, {"summary", nullptr}};
  if (const auto* given = fields.object("reasoning")) {
    for (const auto& member : *given) reasoning[member.key()] = member.value();
  }
  out["text"] = std::move(text);
  out["reasoning"] = std::move(reasoning);
  out["tools"] = given_or(fields, "tools", boost::json::array());
  out["tool_choice"] = given_or(fields, "tool_choice", "auto");
  out["parallel_tool_calls"] = !request.chat.tools.rule.one;
  out["top_logprobs"] = request.chat.common.top_logprobs;
  out["previous_response_id"] =
      request.previous.empty() ? boost::json::value(nullptr) : boost::json::value(request.previous);
  out["truncation"] = "disabled";
  out["service_tier"] = "default";
  return out;
}

void read_generation(FieldReader& fields, ResponseRequest& request, uint32_t vocab) {
  CommonFields& common = request.chat.common;
  common.model = fields.string("model").value_or("");
  common.stream = fields.boolean("stream").value_or(false);
  common.return_reuse = fields.boolean("return_reuse").value_or(false);
  common.schedule = read_schedule_fields(fields);
  common.sampling = read_sampling_fields(fields, vocab);
  if (auto cap = fields.integer("max_output_tokens", 1, std::numeric_limits<int32_t>::max()))
    common.max_tokens = static_cast<uint32_t>(*cap);
  const Included included = read_include(fields);
  request.sealed_reasoning = included.reasoning;
  const auto top = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  common.logprobs = included.logprobs || top.value_or(0) > 0;
  common.top_logprobs = static_cast<uint32_t>(top.value_or(0));
  request.chat.thinking = read_thinking_fields(fields);
  request.chat.form = read_text(fields);
  request.chat.return_progress = fields.boolean("return_progress").value_or(false);
  ResponseTools tools = read_response_tools(fields);
  request.chat.tools = std::move(tools.tools);
  request.tools = std::move(tools.client);
}

}  // namespace

ApiResult<ResponseRequest> parse_response_request(const boost::json::object& body, uint32_t vocab,
                                                  std::string_view serial) {
  FieldReader fields(body);
  ResponseRequest request{.serial = std::string(serial)};
  refuse_unsupported(fields);
  read_generation(fields, request, vocab);
  request.instructions = fields.string("instructions").value_or("");
  request.previous = fields.string("previous_response_id").value_or("");
  request.store = fields.boolean("store").value_or(true);
  request.input = read_response_input(fields, serial);
  boost::json::object metadata = read_metadata(fields);
  if (fields.find("input") == nullptr && request.previous.empty()) fields.fail("input", "input is missing");
  if (fields.failed()) return fields.error();
  request.echo = repeated(fields, request);
  request.echo["metadata"] = std::move(metadata);
  for (const std::string& type : request.chat.tools.dropped)
    request.warnings.push_back(
        fmt::format("tools of the type {} are not offered to the model", snippet(type)));
  return request;
}

}  // namespace strata::gateway
