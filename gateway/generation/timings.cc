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

void AnswerClock::token(Time now) {
  if (!first_token_) first_token_ = now;
}

Timings AnswerClock::timings(Time now) const {
  const Time end = ended_.value_or(now), first = first_token_.value_or(end);
  return {.prompt = first - begun_, .predicted = end - first};
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
