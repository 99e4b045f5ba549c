#pragma once
// What the generating endpoints have in common: sampling, caps, stop strings, streaming. One
// place, so that every field means the same everywhere (rule A9). docs/api.md lists the fields; a test
// compares.

#include <boost/json/object.hpp>
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

inline constexpr uint32_t kChoicesMax = 128;  // of one request, those included that best_of drops
inline constexpr uint32_t kBestOfMax = 20;

struct CommonFields {
  std::string model;
  uint32_t n = 1;  // answers to each prompt
  bool stream = false;
  bool include_usage = false;
  bool return_reuse = false;
  SamplingFields sampling;
  std::vector<std::string> stop;
  std::optional<uint32_t> max_tokens;  // not set: what the context leaves
  bool logprobs = false;
  uint32_t top_logprobs = 0;
};

// Everything but logprobs, whose form differs. vocab: token ids in logit_bias must be below it.
CommonFields read_common_fields(FieldReader& fields, uint32_t vocab);

// Parts of it, for dialects in which the rest has another form.
SamplingFields read_sampling_fields(FieldReader& fields, uint32_t vocab);
// A string or an array of strings; count_max: how many.
std::vector<std::string> read_stop_strings(FieldReader& fields, std::string_view name, uint32_t count_max);

}  // namespace strata::gateway
