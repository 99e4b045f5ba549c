#pragma once
// From logits to one token. Deterministic: the random number is Philox4x32-10 keyed by (seed, token
// position), so that batching, speculation, resumption and crashes cannot shift it (numbers contract).

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace strata::model {

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  uint32_t top_k = 0;        // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;  // divides positive, multiplies negative logits of tokens seen
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint32_t penalty_last_n = 64;  // how many of the last tokens repetition_penalty looks at; 0: all
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  bool logprobs = false;
  uint32_t top_logprobs = 0;
};

struct SampledToken {
  int32_t id = 0;
  float logprob = 0;                                // log softmax of the unmodified logits, when asked for
  std::vector<std::pair<int32_t, float>> top = {};  // (id, logprob), falling
};

constexpr uint32_t mask_words(uint32_t vocab) { return (vocab + 31) / 32; }

// position: of the token being chosen, counted from the start of the sequence. prompt_tokens and generated:
// the history that the penalties look at (presence and frequency: generated tokens only, repetition: both).
// Order: penalties and bias, temperature, top_k, top_p, min_p, draw; equal logits: the lower id first.
// NaN and -infinity are never chosen. The draw walks the candidates by falling logit where top_k or top_p
// have ordered them, by rising id otherwise (docs/model.md).
//
// mask: (mask_words) bit t % 32 of word t / 32 says whether token t may be chosen; empty: all may. It comes
// after penalties and bias and before everything else; with nothing else left the first allowed token is
// chosen, whatever its logit. Log-probabilities are those of all tokens, as without it.
class Sampler {
 public:
  explicit Sampler(uint32_t vocab);
  SampledToken sample(std::span<const float> logits, const SamplingParams& params, uint64_t position,
                      std::span<const int32_t> prompt_tokens, std::span<const int32_t> generated,
                      std::span<const uint32_t> mask = {});

 private:
  void apply_penalties(std::span<const float> logits, const SamplingParams& params,
                       std::span<const int32_t> prompt_tokens, std::span<const int32_t> generated);
  int32_t apply_mask(std::span<const float> values, std::span<const uint32_t> mask);
  int32_t draw_token(std::span<const float> values, const SamplingParams& params, uint64_t position,
                     int32_t fallback);

  std::vector<float> work_;                            // (vocab) logits after penalties, bias and mask
  std::vector<uint32_t> counts_;                       // (vocab) all zero between calls
  std::vector<std::pair<float, int32_t>> candidates_;  // at most (vocab); (logit, then weight, id)
};

// Philox4x32-10 with key = seed, counter = (position, draw): four 32-bit words.
struct PhiloxWords {
  uint32_t word[4];
};
PhiloxWords philox(uint64_t seed, uint64_t position, uint64_t draw);

}  // namespace strata::model
