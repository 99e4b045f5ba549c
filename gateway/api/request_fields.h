#pragma once
// What the generating endpoints have in common: sampling, caps, stop strings, streaming. One
// place, so that every field means the same everywhere (rule A9). docs/api.md lists the fields; a test
// compares.

#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/api/field_reader.h"

namespace strata::gateway {

// The sampling fields of a request; what is not set comes from the model's file or the configuration.
struct SamplingFields {
  std::optional<float> temperature, top_p, min_p;
  std::optional<uint32_t> top_k;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint32_t> penalty_last_n;
  std::optional<uint64_t> seed;  // not set: a random one
  std::vector<std::pair<int32_t, float>> logit_bias;
};

// When a request is served, and how long it may take.
struct ScheduleFields {
  int32_t priority = 0;                              // lower comes earlier, as in vLLM
  std::optional<std::chrono::milliseconds> timeout;  // not set: none but the server's
};

inline constexpr int32_t kPriorityMax = 1000;             // either way
inline constexpr int64_t kTimeoutMsMax = 7 * 86'400'000;  // a week

inline constexpr uint32_t kChoicesMax = 128;  // of one request, those included that best_of drops
inline constexpr uint32_t kBestOfMax = 20;

struct CommonFields {
  std::string model;
  uint32_t n = 1;  // answers to each prompt
  bool stream = false;
  bool include_usage = false;
  bool return_reuse = false;
  ScheduleFields schedule;
  SamplingFields sampling;
  std::vector<std::string> stop;
  std::optional<uint32_t> max_tokens;  // not set: what the context leaves
  bool logprobs = false;
  uint32_t top_logprobs = 0;
};

// Everything but logprobs, whose form differs. vocab: token ids in logit_bias must be below it.
CommonFields read_common_fields(FieldReader& fields, uint32_t vocab);

// Parts of it, for dialects in which the rest has another form.
ScheduleFields read_schedule_fields(FieldReader& fields);
SamplingFields read_sampling_fields(FieldReader& fields, uint32_t vocab);
// A string or an array of strings; count_max: how many.
std::vector<std::string> read_stop_strings(FieldReader& fields, std::string_view name, uint32_t count_max);

// The header X-Timeout-Ms; nullptr: it was not sent.
ApiResult<std::optional<std::chrono::milliseconds>> read_timeout_header(const std::string* text);

}  // namespace strata::gateway
