#include "gateway/generation/timings.h"

#include <string>

namespace strata::gateway {

namespace {

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

void put(boost::json::object& out, const std::string& name, uint32_t tokens, std::chrono::nanoseconds time) {
  const double ms = milliseconds(time);
  out[name + "_n"] = tokens;
  out[name + "_ms"] = ms;
  out[name + "_per_token_ms"] = ratio(ms, tokens);
  out[name + "_per_second"] = ratio(tokens * 1000.0, ms);
}

}  // namespace

void RequestClock::choice_begins(Time now) {
  choice_ = now;
  first_token_.reset();
}

void RequestClock::token(Time now) {
  if (!first_token_) first_token_ = now;
}

void RequestClock::choice_ends(Time now) {
  if (!choice_) return;
  timings_.prompt += first_token_.value_or(now) - *choice_;
  if (first_token_) timings_.predicted += now - *first_token_;
  choice_.reset();
}

boost::json::object timings_json(const Timings& timings, const TimedTokens& tokens) {
  boost::json::object out;
  out["cache_n"] = tokens.cached;
  put(out, "prompt", tokens.prompt, timings.prompt);
  put(out, "predicted", tokens.predicted, timings.predicted);
  out["queue_ms"] = milliseconds(timings.queue);
  return out;
}

}  // namespace strata::gateway
