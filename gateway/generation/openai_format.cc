#include "gateway/generation/openai_format.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "gateway/api/json_text.h"
#include "gateway/api/utf8.h"
#include "gateway/generation/sse.h"

namespace strata::gateway {

namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";

std::string_view reason_name(Finish::Reason reason) {
  switch (reason) {
    case Finish::Reason::kLength:
      return "length";
    case Finish::Reason::kToolCalls:
      return "tool_calls";
    case Finish::Reason::kStop:
    case Finish::Reason::kStopString:
      break;
  }
  return "stop";
}

boost::json::object token_json(const std::string& bytes, float logprob) {
  boost::json::array byte_values;
  for (char c : bytes) byte_values.push_back(static_cast<unsigned char>(c));
  boost::json::object out;
  out["token"] = to_valid_utf8(bytes);
  out["logprob"] = float_json(logprob);
  out["bytes"] = std::move(byte_values);
  return out;
}

}  // namespace

std::string OpenAiFormat::begin_stream(const Usage&) { return ": accepted\n\n"; }

std::string OpenAiFormat::queued(uint32_t position) {
  return fmt::format(": queued, position {}\n\n", position);
}

std::string OpenAiFormat::keep_alive() { return ": keep-alive\n\n"; }

std::string OpenAiFormat::progress(uint32_t choice, const PromptProgress& progress, uint64_t time_ms) {
  boost::json::object out = with_choice(empty_choice(choice));
  out["prompt_progress"] = progress_json(progress, time_ms);
  return sse_data(to_json(out));
}

std::string OpenAiFormat::end_stream(const Usage& usage) {
  std::string out;
  if (options_.include_usage) {
    boost::json::object last = envelope(chunk_object_);
    last["choices"] = boost::json::array();
    put_usage(last, usage);
    out = sse_data(to_json(last));
  }
  out += kDone;
  return out;
}

std::string OpenAiFormat::fail_stream(const ApiError& error) {
  return sse_data(error_json(error, Dialect::kOpenAi)) + std::string(kDone);
}

boost::json::object OpenAiFormat::envelope(std::string_view object) const {
  boost::json::object out;
  out["id"] = identity_.id;
  out["object"] = object;
  out["created"] = identity_.created;
  out["model"] = identity_.model;
  out["system_fingerprint"] = identity_.fingerprint;
  return out;
}

std::string OpenAiFormat::chunk(boost::json::object choice) const {
  return sse_data(to_json(with_choice(std::move(choice))));
}

std::string OpenAiFormat::finish_chunk(boost::json::object choice, const Finish& finish) const {
  put_finish(choice, finish);
  boost::json::object out = with_choice(std::move(choice));
  if (finish.request && !options_.include_usage) out["timings"] = timings_json(*finish.request);
  return sse_data(to_json(out));
}

boost::json::object OpenAiFormat::with_choice(boost::json::object choice) const {
  boost::json::object out = envelope(chunk_object_);
  boost::json::array choices;
  choices.push_back(std::move(choice));
  out["choices"] = std::move(choices);
  return out;
}

void OpenAiFormat::put_usage(boost::json::object& out, const Usage& usage) {
  out["usage"] = usage_json(usage);
  out["timings"] = timings_json(usage);
}

boost::json::object usage_json(const Usage& usage) {
  boost::json::object prompt_details, completion_details, out;
  prompt_details["cached_tokens"] = usage.cached_tokens;
  completion_details["reasoning_tokens"] = usage.reasoning_tokens;
  out["prompt_tokens"] = usage.prompt_tokens;
  out["completion_tokens"] = usage.completion_tokens;
  out["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  out["prompt_tokens_details"] = std::move(prompt_details);
  out["completion_tokens_details"] = std::move(completion_details);
  return out;
}

boost::json::value float_json(float value) {
  const std::string text = number_text(value);
  double wide = 0;
  std::from_chars(text.data(), text.data() + text.size(), wide);
  return std::isfinite(wide) ? boost::json::value(wide) : boost::json::value(nullptr);
}

boost::json::object progress_json(const PromptProgress& progress, uint64_t time_ms) {
  boost::json::object figures;
  figures["total"] = progress.total;
  figures["cached"] = progress.cached;
  figures["processed"] = progress.processed;
  figures["time_ms"] = time_ms;
  return figures;
}

boost::json::array scores_json(const std::vector<TokenScore>& scores) {
  boost::json::array out;
  for (const TokenScore& score : scores) {
    boost::json::object entry = token_json(score.bytes, score.logprob);
    boost::json::array top;
    for (const auto& [bytes, logprob] : score.top) top.push_back(token_json(bytes, logprob));
    entry["top_logprobs"] = std::move(top);
    out.push_back(std::move(entry));
  }
  return out;
}

void put_finish(boost::json::object& choice, const Finish& finish) {
  choice["finish_reason"] = reason_name(finish.reason);
  if (!finish.detail.empty()) choice["finish_detail"] = finish.detail;
  if (finish.reuse) choice["reuse"] = *finish.reuse;
}

}  // namespace strata::gateway
