#include "gpu-worker/generate_request.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "services/base/limits.h"
#include "services/rpc/snapshot_words.h"

namespace strata::gpu_worker {

namespace {

Result<std::vector<int32_t>> read_tokens(std::string_view field,
                                         const google::protobuf::RepeatedField<int32_t>& tokens,
                                         uint32_t vocab) {
  for (int index = 0; index < tokens.size(); ++index) {
    int32_t token = tokens.Get(index);
    if (token < 0 || static_cast<uint32_t>(token) >= vocab) {
      return fail(Code::kInvalidArgument, "{}[{}]: token {} is not in the vocabulary of {}", field, index,
                  token, vocab);
    }
  }
  return std::vector<int32_t>(tokens.begin(), tokens.end());
}

// Empty: zero, which is none.
Result<snapshot::Hash128> read_hash(std::string_view field, const std::string& bytes) {
  if (bytes.empty()) return snapshot::Hash128{};
  auto hash = snapshot::Hash128::from_bytes(bytes);
  if (!hash) return fail(Code::kInvalidArgument, "{}: {}", field, hash.error().message());
  return hash;
}

Result<std::vector<CheckpointWish>> read_checkpoints(const v1::GenerateRequest& request) {
  std::vector<CheckpointWish> wishes;
  for (int index = 0; index < request.checkpoints_size(); ++index) {
    const v1::Checkpoint& wish = request.checkpoints(index);
    const uint32_t before = wishes.empty() ? 0 : wishes.back().tokens;
    if (wish.prompt_tokens() <= before ||
        wish.prompt_tokens() > static_cast<uint32_t>(request.prompt_tokens_size())) {
      return fail(Code::kInvalidArgument,
                  "checkpoints[{}]: {} tokens, expected more than {} and at most the prompt's {}", index,
                  wish.prompt_tokens(), before, request.prompt_tokens_size());
    }
    wishes.push_back(
        {wish.prompt_tokens(), rpc::kind_from_wire(wish.kind()).value_or(snapshot::SnapshotKind::kTurn)});
  }
  return wishes;
}

struct Range {
  float min, max;
  bool above_min = false;  // the minimum itself is excluded
};

Status check_range(std::string_view field, float value, Range range) {
  bool in_range = std::isfinite(value) && value <= range.max &&
                  (range.above_min ? value > range.min : value >= range.min);
  if (in_range) return {};
  return fail(Code::kInvalidArgument, "sampling.{}: {} is not {} {} and at most {}", field, value,
              range.above_min ? "above" : "at least", range.min, range.max);
}

Result<model::SamplingParams> read_sampling(const v1::Sampling& sampling, uint32_t vocab) {
  constexpr float kAny = 1e6f;
  TRY_OK(check_range("temperature", sampling.temperature(), {0, kAny}));
  TRY_OK(check_range("top_p", sampling.top_p(), {0, 1, true}));
  TRY_OK(check_range("min_p", sampling.min_p(), {0, 1}));
  TRY_OK(check_range("repetition_penalty", sampling.repetition_penalty(), {0, kAny, true}));
  TRY_OK(check_range("presence_penalty", sampling.presence_penalty(), {-kAny, kAny}));
  TRY_OK(check_range("frequency_penalty", sampling.frequency_penalty(), {-kAny, kAny}));
  if (sampling.top_logprobs() > kTopLogprobsMax) {
    return fail(Code::kInvalidArgument, "sampling.top_logprobs: {} is more than {}", sampling.top_logprobs(),
                kTopLogprobsMax);
  }
  model::SamplingParams params{.temperature = sampling.temperature(),
                               .top_k = sampling.top_k(),
                               .top_p = sampling.top_p(),
                               .min_p = sampling.min_p(),
                               .repetition_penalty = sampling.repetition_penalty(),
                               .presence_penalty = sampling.presence_penalty(),
                               .frequency_penalty = sampling.frequency_penalty(),
                               .penalty_last_n = sampling.penalty_last_n(),
                               .seed = sampling.seed(),
                               .logit_bias = {},
                               .logprobs = sampling.logprobs(),
                               .top_logprobs = sampling.top_logprobs()};
  for (const v1::LogitBias& bias : sampling.logit_bias()) {
    if (bias.token() < 0 || static_cast<uint32_t>(bias.token()) >= vocab) {
      return fail(Code::kInvalidArgument, "sampling.logit_bias: token {} is not in the vocabulary of {}",
                  bias.token(), vocab);
    }
    // Minus infinity forbids a token; plus infinity or NaN would leave nothing to choose from.
    if (std::isnan(bias.bias()) || bias.bias() > kAny) {
      return fail(Code::kInvalidArgument, "sampling.logit_bias: {} for token {} is not a number up to {}",
                  bias.bias(), bias.token(), kAny);
    }
    params.logit_bias.emplace_back(bias.token(), bias.bias());
  }
  return params;
}

Result<ConstraintWish> read_constraint(const v1::GenerateRequest& request, uint32_t vocab) {
  ConstraintWish wish;
  if (request.has_constraint()) {
    const v1::Constraint& constraint = request.constraint();
    if (constraint.gbnf().empty()) return fail(Code::kInvalidArgument, "constraint.gbnf: is empty");
    if (constraint.prompt_tokens() > static_cast<uint32_t>(request.prompt_tokens_size())) {
      return fail(Code::kInvalidArgument, "constraint.prompt_tokens: {} of a prompt of {} tokens",
                  constraint.prompt_tokens(), request.prompt_tokens_size());
    }
    wish.gbnf = constraint.gbnf();
    wish.prompt_tokens = constraint.prompt_tokens();
  }
  const auto read_mark = [vocab](std::string_view field, int32_t token) -> Result<int32_t> {
    if (token >= 0 && static_cast<uint32_t>(token) < vocab) return token;
    return fail(Code::kInvalidArgument, "{}: token {} is not in the vocabulary of {}", field, token, vocab);
  };
  if (request.has_thinking_end()) {
    TRY(wish.thinking_end, read_mark("thinking_end", request.thinking_end()));
  }
  if (request.has_thinking_tokens_max()) {
    if (!wish.thinking_end) return fail(Code::kInvalidArgument, "thinking_tokens_max: needs thinking_end");
    wish.thinking_tokens_max = request.thinking_tokens_max();
  }
  if (request.has_thinking_begin()) {
    if (!wish.thinking_tokens_max)
      return fail(Code::kInvalidArgument, "thinking_begin: needs thinking_tokens_max");
    TRY(wish.thinking_begin, read_mark("thinking_begin", request.thinking_begin()));
  }
  return wish;
}

}  // namespace

Result<GenerationRequest> read_generate_request(const v1::GenerateRequest& request,
                                                const RequestLimits& limits) {
  GenerationRequest read{.request_id = request.request_id(),
                         .prompt = {},
                         .generated = {},
                         .sampling = {},
                         .max_tokens = request.max_tokens(),
                         .end_tokens = {},
                         .name_space = {},
                         .shared_tokens = request.shared_prompt_tokens(),
                         .checkpoints = {},
                         .parked_id = {},
                         .parked_tokens = request.parked_tokens(),
                         .constraint = {}};
  TRY(read.name_space, read_hash("name_space", request.name_space()));
  TRY(read.parked_id, read_hash("parked_id", request.parked_id()));
  if (!read.parked_id.is_zero() && read.parked_tokens == 0)
    return fail(Code::kInvalidArgument, "parked_tokens: a parked state has at least one token");
  TRY(read.prompt, read_tokens("prompt_tokens", request.prompt_tokens(), limits.vocab));
  TRY(read.generated, read_tokens("generated_tokens", request.generated_tokens(), limits.vocab));
  TRY(read.end_tokens, read_tokens("end_tokens", request.end_tokens(), limits.vocab));
  TRY(read.checkpoints, read_checkpoints(request));
  read.answer_checkpoint_tokens = request.answer_checkpoint_tokens();
  if (read.prompt.empty())
    return fail(Code::kInvalidArgument, "prompt_tokens: a prompt has at least one token");
  if (read.max_tokens == 0)
    return fail(Code::kInvalidArgument, "max_tokens: an answer has at least one token");
  if (read.prompt.size() >= limits.context_tokens) {
    return fail(Code::kOutOfRange,
                "the prompt of {} tokens leaves no room for an answer in the context of {} tokens",
                read.prompt.size(), limits.context_tokens);
  }
  if (read.prompt.size() + read.generated.size() > limits.context_tokens) {
    return fail(Code::kOutOfRange, "prompt and answer of {} tokens do not fit the context of {} tokens",
                read.prompt.size() + read.generated.size(), limits.context_tokens);
  }
  if (request.has_sampling()) {
    TRY(read.sampling, read_sampling(request.sampling(), limits.vocab));
  } else {
    read.sampling.temperature = 0;
  }
  TRY(read.constraint, read_constraint(request, limits.vocab));
  return read;
}

}  // namespace strata::gpu_worker
