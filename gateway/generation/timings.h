#pragma once
// Where the time of one request went, in the members that llama.cpp's server gives in `timings` and its users
// read, and the wait before it. Pure; whoever uses it says what time it is.

#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <optional>

namespace strata::gateway {

// Of all answers of a request added up, also where they ran side by side. An answer's prompt is being read
// until its first token is there, everything behind it is prediction, a pause of the engine included.
struct Timings {
  std::chrono::nanoseconds queue{0};  // until a sequence was free
  std::chrono::nanoseconds prompt{0};
  std::chrono::nanoseconds predicted{0};
};

class AnswerClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit AnswerClock(Time begun) : begun_(begun) {}
  // Of every token; only the first one counts.
  void token(Time now);
  void ends(Time now) { ended_ = now; }
  // Up to now where it has not ended; without the queue.
  Timings timings(Time now) const;

 private:
  Time begun_;
  std::optional<Time> first_token_, ended_;
};

// What the rates are about.
struct TimedTokens {
  uint32_t cached = 0;  // of the prompts, reused
  uint32_t prompt = 0;  // of the prompts, read
  uint32_t predicted = 0;
};

// {"cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n",
// "predicted_ms", "predicted_per_token_ms", "predicted_per_second", "queue_ms"}. A rate of nothing is 0.
boost::json::object timings_json(const Timings& timings, const TimedTokens& tokens);

}  // namespace strata::gateway
