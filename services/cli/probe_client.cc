#include "services/cli/probe_client.h"

#include <boost/json.hpp>
#include <chrono>
#include <optional>

#include "services/cli/chat_session.h"

namespace strata::cli {

namespace json = boost::json;

namespace {

using Clock = std::chrono::steady_clock;

std::string body_of(const ProbeRequest& request) {
  json::array messages;
  for (const ProbeMessage& message : request.messages)
    messages.push_back(json::object{{"role", message.role}, {"content", message.content}});
  // Thinking would not be sent back, and the next turn would begin with other tokens than the answer left.
  return json::serialize(json::object{{"model", "default"},
                                      {"messages", std::move(messages)},
                                      {"max_tokens", request.max_tokens},
                                      {"temperature", 0},
                                      {"chat_template_kwargs", json::object{{"enable_thinking", false}}},
                                      {"stream", true},
                                      {"stream_options", json::object{{"include_usage", true}}}});
}

uint64_t count_at(const json::value& event, const char* pointer) {
  boost::system::error_code error;
  const json::value* found = event.find_pointer(pointer, error);
  if (found == nullptr || !found->is_number()) return 0;
  const auto count = found->to_number<uint64_t>(error);
  return error ? 0 : count;
}

std::string text_at(const json::value& event, const char* pointer) {
  boost::system::error_code error;
  const json::value* found = event.find_pointer(pointer, error);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : "";
}

// What the events of one answer add up to.
struct Streamed {
  ProbeAnswer answer = {};
  std::optional<Clock::time_point> first = {};
  std::string fault = {};

  void take(const std::string& data) {
    boost::system::error_code error;
    const json::value event = json::parse(data, error);
    if (error) return;  // "[DONE]"
    if (event.find_pointer("/error", error) != nullptr) fault = error_text(data);
    if (const uint64_t count = count_at(event, "/usage/prompt_tokens"); count > 0) {
      answer.prompt_tokens = count;
      answer.cached_tokens = count_at(event, "/usage/prompt_tokens_details/cached_tokens");
    }
    const std::string text = text_at(event, "/choices/0/delta/content");
    const std::string reasoning = text_at(event, "/choices/0/delta/reasoning_content");
    if (!first && !(text.empty() && reasoning.empty())) first = Clock::now();
    answer.text += text;
    answer.reasoning += reasoning;
  }
};

}  // namespace

Result<ProbeAnswer> ask_chat(const Url& url, const ProbeRequest& request,
                             const std::atomic<bool>* cancelled) {
  Streamed streamed;
  EventReader events([&](const std::string& data) { streamed.take(data); });
  const HttpRequest http{
      .method = "POST", .path = "/v1/chat/completions", .body = body_of(request), .cancelled = cancelled};
  const auto asked = Clock::now();
  TRY(const HttpResponse response,
      http_request(url, http, [&](std::string_view piece) { events.feed(piece); }));
  if (response.status != 200)
    return fail(Code::kUnavailable, "{} (HTTP {})", error_text(response.body), response.status);
  if (!streamed.fault.empty()) return fail(Code::kUnavailable, "{}", streamed.fault);
  ProbeAnswer& answer = streamed.answer;
  if (answer.prompt_tokens == 0)
    return fail(Code::kDataLoss, "the answer does not say how long its prompt was");
  const auto first = streamed.first.value_or(Clock::now());
  answer.first_token_seconds = std::chrono::duration<double>(first - asked).count();
  return std::move(answer);
}

Result<ServedModel> served_model(const Url& url, const std::atomic<bool>* cancelled) {
  TRY(const HttpResponse response,
      http_request(url, {.path = "/v1/models", .body = {}, .cancelled = cancelled}));
  if (response.status != 200)
    return fail(Code::kUnavailable, "/v1/models: {} (HTTP {})", error_text(response.body), response.status);
  boost::system::error_code error;
  const json::value models = json::parse(response.body, error);
  if (error) return fail(Code::kDataLoss, "/v1/models: no JSON");
  return ServedModel{.name = text_at(models, "/data/0/id"),
                     .context_tokens = count_at(models, "/data/0/context_length")};
}

}  // namespace strata::cli
