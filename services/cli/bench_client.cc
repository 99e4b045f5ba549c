#include "services/cli/bench_client.h"

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <thread>

#include "services/cli/chat_session.h"

namespace strata::cli {

namespace json = boost::json;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string body_of(const BenchRequest& request) {
  json::object bias;
  for (const int32_t token : request.never) bias[std::to_string(token)] = -100;
  json::object body{{"model", "default"},
                    {"prompt", json::value_from(request.prompt)},
                    {"max_tokens", request.max_tokens},
                    {"seed", request.seed},
                    {"stream", true},
                    {"stream_options", json::object{{"include_usage", true}}}};
  if (!bias.empty()) body["logit_bias"] = std::move(bias);
  if (!request.grammar.empty()) body["grammar"] = request.grammar;
  return json::serialize(body);
}

void take_event(const std::string& data, BenchAnswer& answer, std::string& fault) {
  boost::system::error_code error;
  const json::value event = json::parse(data, error);
  if (error) return;  // "[DONE]"
  if (event.find_pointer("/error", error) != nullptr) fault = error_text(data);
  const auto count = [&](const char* pointer, uint64_t& into) {
    const json::value* found = event.find_pointer(pointer, error);
    if (found != nullptr && found->is_number()) into = found->to_number<uint64_t>();
  };
  count("/usage/prompt_tokens", answer.prompt_tokens);
  count("/usage/completion_tokens", answer.answer_tokens);
  const json::value* text = event.find_pointer("/choices/0/text", error);
  if (text == nullptr || !text->is_string() || text->get_string().empty()) return;
  const double at = now();
  if (answer.first == 0) {
    answer.first = at;
  } else {
    answer.pauses.push_back(at - answer.last);
  }
  answer.last = at;
}

}  // namespace

Result<BenchAnswer> complete(const Url& url, const BenchRequest& request,
                             const std::atomic<bool>* cancelled) {
  BenchAnswer answer;
  std::string fault;
  EventReader events([&](const std::string& data) { take_event(data, answer, fault); });
  HttpRequest http{
      .method = "POST", .path = "/v1/completions", .body = body_of(request), .cancelled = cancelled};
  answer.asked = now();
  TRY(const HttpResponse response,
      http_request(url, http, [&](std::string_view piece) { events.feed(piece); }));
  if (response.status != 200)
    return fail(Code::kUnavailable, "{} (HTTP {})", error_text(response.body), response.status);
  if (!fault.empty()) return fail(Code::kUnavailable, "{}", fault);
  if (answer.answer_tokens == 0) return fail(Code::kDataLoss, "the answer has no tokens");
  if (answer.first == 0) answer.first = answer.last = now();  // tokens without text
  return answer;
}

Result<std::vector<BenchAnswer>> complete_all(const Url& url, const std::vector<BenchRequest>& requests,
                                              const std::atomic<bool>* cancelled) {
  std::vector<Result<BenchAnswer>> results(requests.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < requests.size(); ++i)
      threads.emplace_back([&, i] { results[i] = complete(url, requests[i], cancelled); });
  }
  std::vector<BenchAnswer> answers;
  for (auto& result : results) {
    TRY(BenchAnswer answer, std::move(result));
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace strata::cli
