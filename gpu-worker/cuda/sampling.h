#pragma once
// From logits to one token per row, on the device: two launches, whatever the requests are. Chooses the same
// token as model::Sampler. Not everything: see sampled_on_device(). The caller copies the logits of other
// rows to the host and uses model::Sampler.

#include <span>
#include <vector>

#include "gpu-worker/cuda/cuda_words.h"
#include "gpu-worker/cuda/device_types.h"
#include "services/model/sampling.h"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kSampleTopKMax = 1024;
inline constexpr uint32_t kTopLogprobsMax = 20;

// Penalties and bias of one token, as Sampler::apply_penalties applies them, in the order of the members. One
// entry per token.
struct LogitChange {
  int32_t token = 0;
  float repetition = 1;  // divides a positive, multiplies another logit
  float frequency = 0;   // subtracted: frequency penalty times count
  float presence = 0;    // subtracted
  float bias = 0;        // added
};

// What one row of logits is asked for.
struct SampleRow {
  float temperature = 0;  // 0: greedy
  float top_p = 1;
  float min_p = 0;
  uint32_t top_k = 0;
  double random = 0;          // in [0, 1): Philox of seed and position, as model::Sampler draws it
  uint32_t change_begin = 0;  // its entries of SampleArgs::changes
  uint32_t change_count = 0;
  uint32_t wants_logprobs = 0;  // 1: logprob is filled
  uint32_t top_logprobs = 0;    // <= kTopLogprobsMax, with wants_logprobs
  uint32_t masked = 0;          // 1: only tokens of its row of SampleArgs::masks are chosen
};

struct SampleResult {
  int32_t id = -1;
  uint32_t usable = 0;  // 0: the logits held NaN or infinity, or were all equal; nothing was chosen
  float logprob = 0;    // of the unmodified logits; within 1e-6 of the host's
  uint32_t top_count = 0;
  int32_t top_ids[kTopLogprobsMax] = {};  // falling logprob, equal ones by lower id
  float top_logprobs[kTopLogprobsMax] = {};
};

struct SampleArgs {
  const float* logits = nullptr;  // (rows, vocab), not changed
  uint32_t rows = 0;
  uint32_t vocab = 0;
  const SampleRow* requests = nullptr;   // (rows)
  const LogitChange* changes = nullptr;  // of all rows
  // (rows, mask_words) as in model::Sampler, each with a token at least; read of masked rows only, once. May
  // be page-locked host memory.
  const uint32_t* masks = nullptr;
  std::byte* scratch = nullptr;     // sampling_scratch_bytes(), aligned to 16
  SampleResult* results = nullptr;  // out (rows); may be page-locked host memory
};
void sample(const SampleArgs& args, cudaStream_t stream);
uint64_t sampling_scratch_bytes(uint32_t rows, uint32_t vocab);

// Greedy, or 1 <= top_k <= kSampleTopKMax below the vocabulary's size; at most kTopLogprobsMax
// log-probabilities; no token twice in logit_bias.
bool sampled_on_device(const model::SamplingParams& params, uint32_t vocab);
// Appends the request's changes, in no particular order, and gives the row's request (change_begin: the size
// of `changes` before).
SampleRow sample_row(const model::SamplingParams& params, uint64_t position, std::span<const int32_t> prompt,
                     std::span<const int32_t> generated, uint32_t vocab, std::vector<LogitChange>& changes);
model::SampledToken sampled_token(const SampleResult& result);

}  // namespace strata::gpu_worker::cuda
