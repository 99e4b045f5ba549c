#include "gateway/generation/format_parts.h"

#include <charconv>
#include <cmath>

#include "gateway/api/json_text.h"

namespace strata::gateway {

boost::json::object answer_envelope(const AnswerIdentity& identity, std::string_view object) {
  boost::json::object out;
  out["id"] = identity.id;
  out["object"] = object;
  out["created"] = identity.created;
  out["model"] = identity.model;
  out["system_fingerprint"] = identity.fingerprint;
  return out;
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

boost::json::object progress_json(const PromptProgress& progress, uint64_t time_ms) {
  boost::json::object out;
  out["total"] = progress.total;
  out["cached"] = progress.cached;
  out["processed"] = progress.processed;
  out["time_ms"] = time_ms;
  return out;
}

std::string usage_chunk_text(const AnswerIdentity& identity, std::string_view object, const Usage& usage) {
  boost::json::object out = answer_envelope(identity, object);
  out["choices"] = boost::json::array();
  out["usage"] = usage_json(usage);
  return to_json(out);
}

std::string progress_chunk_text(const AnswerIdentity& identity, std::string_view object,
                                boost::json::object choice, const PromptProgress& progress,
                                uint64_t time_ms) {
  boost::json::object out = answer_envelope(identity, object);
  boost::json::array choices;
  choices.push_back(std::move(choice));
  out["choices"] = std::move(choices);
  out["prompt_progress"] = progress_json(progress, time_ms);
  return to_json(out);
}

boost::json::value float_json(float value) {
  const std::string text = number_text(value);
  double wide = 0;
  std::from_chars(text.data(), text.data() + text.size(), wide);
  return std::isfinite(wide) ? boost::json::value(wide) : boost::json::value(nullptr);
}

void put_finish(boost::json::object& choice, const Finish& finish) {
  choice["finish_reason"] = finish.reason;
  if (!finish.detail.empty()) choice["finish_detail"] = finish.detail;
  if (finish.reuse) choice["reuse"] = *finish.reuse;
}

}  // namespace strata::gateway
