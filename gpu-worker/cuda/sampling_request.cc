// What the host says of a request to sampling.cu.

#include <algorithm>
#include <unordered_map>

#include "gpu-worker/cuda/sampling.h"

namespace strata::gpu_worker::cuda {
namespace {

bool has_repeated_token(const model::SamplingParams& params) {
  std::vector<int32_t> tokens;
  for (const auto& [token, bias] : params.logit_bias) tokens.push_back(token);
  std::sort(tokens.begin(), tokens.end());
  return std::adjacent_find(tokens.begin(), tokens.end()) != tokens.end();
}

// 53 random bits in [0, 1), as model::Sampler draws them.
double uniform(uint64_t seed, uint64_t position) {
  const model::PhiloxWords words = model::philox(seed, position, 0);
  return static_cast<double>((uint64_t{words.word[0]} << 32 | words.word[1]) >> 11) * 0x1.0p-53;
}

}  // namespace

bool sampled_on_device(const model::SamplingParams& params, uint32_t vocab) {
  const bool orders = params.top_k > 0 && params.top_k <= kSampleTopKMax && params.top_k < vocab;
  if (params.temperature > 0 && !orders) return false;
  if (params.logprobs && params.top_logprobs > kTopLogprobsMax) return false;
  return !has_repeated_token(params);
}

SampleRow sample_row(const model::SamplingParams& params, uint64_t position, std::span<const int32_t> prompt,
                     std::span<const int32_t> generated, uint32_t vocab, std::vector<LogitChange>& changes) {
  std::unordered_map<int32_t, LogitChange> by_token;
  const auto change_of = [&](int32_t token) -> LogitChange* {
    if (token < 0 || static_cast<uint32_t>(token) >= vocab) return nullptr;
    LogitChange& change = by_token[token];
    change.token = token;
    return &change;
  };
  if (params.repetition_penalty != 1.0f) {
    const std::size_t seen = prompt.size() + generated.size();
    const std::size_t window =
        params.penalty_last_n == 0 ? seen : std::min<std::size_t>(seen, params.penalty_last_n);
    const std::span<const int32_t> recent = generated.last(std::min(window, generated.size()));
    for (const std::span<const int32_t> tokens : {recent, prompt.last(window - recent.size())}) {
      for (const int32_t token : tokens) {
        if (LogitChange* change = change_of(token)) change->repetition = params.repetition_penalty;
      }
    }
  }
  if (params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f) {
    std::unordered_map<int32_t, uint32_t> times;
    for (const int32_t token : generated) ++times[token];
    for (const auto& [token, count] : times) {
      LogitChange* change = change_of(token);
      if (change == nullptr) continue;
      change->frequency = params.frequency_penalty * static_cast<float>(count);
      change->presence = params.presence_penalty;
    }
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (LogitChange* change = change_of(token)) change->bias = bias;
  }

  SampleRow row{.temperature = params.temperature,
                .top_p = params.top_p,
                .min_p = params.min_p,
                .top_k = params.top_k,
                .random = uniform(params.seed, position),
                .change_begin = static_cast<uint32_t>(changes.size()),
                .change_count = static_cast<uint32_t>(by_token.size()),
                .wants_logprobs = params.logprobs ? 1u : 0u,
                .top_logprobs = params.logprobs ? params.top_logprobs : 0};
  for (const auto& [token, change] : by_token) changes.push_back(change);
  return row;
}

model::SampledToken sampled_token(const SampleResult& result) {
  model::SampledToken token{.id = result.id, .logprob = result.logprob};
  for (uint32_t i = 0; i < result.top_count; ++i)
    token.top.emplace_back(result.top_ids[i], result.top_logprobs[i]);
  return token;
}

}  // namespace strata::gpu_worker::cuda
