#include "services/model/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "services/base/check.h"
#include "services/quant/quant.h"

namespace strata::model {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

using Candidate = std::pair<float, int32_t>;  // (logit or weight, id)

// The one order of tokens: larger value first, equal values: the lower id.
bool comes_before(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// NaN never wins; no candidate at all: `fallback`.
int32_t arg_max(std::span<const float> values, int32_t fallback = 0) {
  int32_t best = fallback;
  float best_value = kNothing;
  for (std::size_t id = 0; id < values.size(); ++id) {
    if (values[id] > best_value) {
      best_value = values[id];
      best = static_cast<int32_t>(id);
    }
  }
  return best;
}

// The `count` first of all tokens, in order. A bounded heap: nearly every token costs one comparison.
void select_first(std::span<const float> values, std::size_t count, std::vector<Candidate>& out) {
  out.clear();
  for (std::size_t id = 0; id < values.size(); ++id) {
    const float value = values[id];
    if (out.size() < count) {
      if (!(value > kNothing)) continue;
      out.emplace_back(value, static_cast<int32_t>(id));
      std::push_heap(out.begin(), out.end(), comes_before);
    } else if (value > out.front().first) {  // an equal value has the higher id here and stays out
      std::pop_heap(out.begin(), out.end(), comes_before);
      out.back() = {value, static_cast<int32_t>(id)};
      std::push_heap(out.begin(), out.end(), comes_before);
    }
  }
  std::sort_heap(out.begin(), out.end(), comes_before);
}

// Brings candidates begin..end-1 into order; all behind them come later in that order.
void order_front(std::vector<Candidate>& candidates, std::size_t begin, std::size_t end) {
  const auto first = candidates.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(end);
  if (last != candidates.end()) std::nth_element(first, last, candidates.end(), comes_before);
  std::sort(first, last, comes_before);
}

// exp((logit - largest) / temperature): the weight of the best token is 1.
struct Weigher {
  float largest;
  float temperature;
  float operator()(float logit) const { return quant::exp_f32((logit - largest) / temperature); }
};

// Keeps the shortest front whose weights reach top_p of the total, one candidate at least, and leaves it in
// order. Orders in growing steps, so that a whole vocabulary is sorted only when the distribution is really
// that flat.
void keep_top_p(std::vector<Candidate>& candidates, float top_p, const Weigher& weigh, bool is_ordered) {
  double total = 0;
  for (const auto& [logit, id] : candidates) total += weigh(logit);
  const double needed = static_cast<double>(top_p) * total;
  double reached = 0;
  std::size_t ordered = is_ordered ? candidates.size() : 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (i == ordered) {
      const std::size_t next = std::min(candidates.size(), std::max<std::size_t>(256, ordered * 4));
      order_front(candidates, ordered, next);
      ordered = next;
    }
    reached += weigh(candidates[i].first);
    if (reached >= needed) {
      candidates.resize(i + 1);
      return;
    }
  }
}

// 53 random bits in [0, 1).
double uniform(uint64_t seed, uint64_t position) {
  const PhiloxWords words = philox(seed, position, 0);
  const uint64_t bits = uint64_t{words.word[0]} << 32 | words.word[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// candidates: (weight, id), at least one of a weight above zero.
int32_t draw(std::span<const Candidate> candidates, double random) {
  double total = 0;
  for (const auto& [weight, id] : candidates) total += weight;
  const double target = random * total;
  double reached = 0;
  for (const auto& [weight, id] : candidates) {
    reached += weight;
    if (reached > target) return id;
  }
  return candidates.back().second;  // not reached: target < total, and the sum is the same sum
}

bool changes_logits(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f || !params.logit_bias.empty();
}

void fill_logprobs(std::span<const float> logits, const SamplingParams& params,
                   std::vector<Candidate>& scratch, SampledToken& token) {
  const float largest = logits[static_cast<std::size_t>(arg_max(logits))];
  double sum = 0;
  for (const float logit : logits) {
    if (logit > kNothing) sum += quant::exp_f32(logit - largest);
  }
  const double log_sum = static_cast<double>(largest) + std::log(sum);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - log_sum); };
  token.logprob = logprob(logits[static_cast<std::size_t>(token.id)]);
  if (params.top_logprobs == 0) return;
  select_first(logits, params.top_logprobs, scratch);
  token.top.reserve(scratch.size());
  for (const auto& [logit, id] : scratch) token.top.emplace_back(id, logprob(logit));
}

}  // namespace

Sampler::Sampler(uint32_t vocab) : work_(vocab), counts_(vocab) { CHECK(vocab > 0); }

// Leaves the changed logits in work_. Per token: repetition, then frequency times count, then presence, then
// bias.
void Sampler::apply_penalties(std::span<const float> logits, const SamplingParams& params,
                              std::span<const int32_t> prompt_tokens, std::span<const int32_t> generated) {
  std::copy(logits.begin(), logits.end(), work_.begin());
  const auto is_token = [&](int32_t id) { return id >= 0 && static_cast<std::size_t>(id) < work_.size(); };
  // counts_ is all zero between uses: only what was counted is visited and cleared again.
  const auto visit_once = [&](std::span<const int32_t> tokens, const auto& change) {
    for (const int32_t id : tokens) {
      if (!is_token(id) || counts_[static_cast<std::size_t>(id)] == 0) continue;
      change(work_[static_cast<std::size_t>(id)], std::exchange(counts_[static_cast<std::size_t>(id)], 0));
    }
  };
  const auto count = [&](std::span<const int32_t> tokens) {
    for (const int32_t id : tokens) {
      if (is_token(id)) ++counts_[static_cast<std::size_t>(id)];
    }
  };

  if (params.repetition_penalty != 1.0f) {
    const std::size_t seen = prompt_tokens.size() + generated.size();
    const std::size_t window =
        params.penalty_last_n == 0 ? seen : std::min<std::size_t>(seen, params.penalty_last_n);
    const auto recent = generated.last(std::min(window, generated.size()));
    const auto recent_prompt = prompt_tokens.last(window - recent.size());
    count(recent);
    count(recent_prompt);
    const auto penalize = [&](float& logit, uint32_t) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    };
    visit_once(recent, penalize);
    visit_once(recent_prompt, penalize);
  }
  if (params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f) {
    count(generated);
    visit_once(generated, [&](float& logit, uint32_t times) {
      logit = logit - params.frequency_penalty * static_cast<float>(times);
      logit = logit - params.presence_penalty;
    });
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (is_token(id)) work_[static_cast<std::size_t>(id)] += bias;
  }
}

// Leaves `values` (which may be work_) in work_, without the tokens that the mask forbids. Returns the first
// token that it allows.
int32_t Sampler::apply_mask(std::span<const float> values, std::span<const uint32_t> mask) {
  CHECK(mask.size() == mask_words(static_cast<uint32_t>(work_.size())), "mask of {} words for {} tokens",
        mask.size(), work_.size());
  int32_t first = -1;
  for (std::size_t word = 0; word < mask.size(); ++word) {
    const std::size_t begin = word * 32, end = std::min(begin + 32, work_.size());
    if (mask[word] == 0) {
      std::fill(work_.begin() + static_cast<std::ptrdiff_t>(begin),
                work_.begin() + static_cast<std::ptrdiff_t>(end), kNothing);
      continue;
    }
    if (first < 0) first = static_cast<int32_t>(begin) + std::countr_zero(mask[word]);
    for (std::size_t id = begin; id < end; ++id)
      work_[id] = (mask[word] >> (id - begin) & 1U) != 0 ? values[id] : kNothing;
  }
  CHECK(first >= 0 && static_cast<std::size_t>(first) < work_.size(), "the mask allows no token");
  return first;
}

SampledToken Sampler::sample(std::span<const float> logits, const SamplingParams& params, uint64_t position,
                             std::span<const int32_t> prompt_tokens, std::span<const int32_t> generated,
                             std::span<const uint32_t> mask) {
  CHECK(logits.size() == work_.size(), "{} logits, vocabulary {}", logits.size(), work_.size());
  std::span<const float> values = logits;
  if (changes_logits(params)) {
    apply_penalties(logits, params, prompt_tokens, generated);
    values = work_;
  }
  int32_t fallback = 0;
  if (!mask.empty()) {
    fallback = apply_mask(values, mask);
    values = work_;
  }

  SampledToken token;
  token.id =
      params.temperature > 0 ? draw_token(values, params, position, fallback) : arg_max(values, fallback);
  if (params.logprobs) fill_logprobs(logits, params, candidates_, token);
  return token;
}

int32_t Sampler::draw_token(std::span<const float> values, const SamplingParams& params, uint64_t position,
                            int32_t fallback) {
  const int32_t best = arg_max(values, fallback);
  const float largest = values[static_cast<std::size_t>(best)];
  if (!std::isfinite(largest)) return best;

  const bool ordered = params.top_k > 0 && params.top_k < values.size();
  if (ordered) {
    select_first(values, params.top_k, candidates_);
  } else {
    candidates_.clear();
    for (std::size_t id = 0; id < values.size(); ++id) {
      if (values[id] > kNothing) candidates_.emplace_back(values[id], static_cast<int32_t>(id));
    }
  }
  const Weigher weigh{largest, params.temperature};
  if (params.top_p < 1.0f) keep_top_p(candidates_, params.top_p, weigh, ordered);
  for (auto& [value, id] : candidates_) value = weigh(value);
  if (params.min_p > 0.0f) {
    std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.first < params.min_p; });
    if (candidates_.empty()) return best;  // min_p above 1
  }
  return draw(candidates_, uniform(params.seed, position));
}

PhiloxWords philox(uint64_t seed, uint64_t position, uint64_t draw) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  PhiloxWords c = {{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                    static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32)}};
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * c.word[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * c.word[2];
    c = {{static_cast<uint32_t>(product1 >> 32) ^ c.word[1] ^ key0, static_cast<uint32_t>(product1),
          static_cast<uint32_t>(product0 >> 32) ^ c.word[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

}  // namespace strata::model
