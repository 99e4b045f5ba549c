#include "services/synthetic/model_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "services/synthetic/encoder.h"
#include "services/synthetic/tokenizer_data.h"

namespace strata::synthetic {
namespace {

using gguf::FileBuilder;
using gguf::ValueType;

constexpr uint32_t kConvTaps = 4;

class Planner {
 public:
  Planner(const ModelRequest& request, const ModelShape& shape)
      : request_(request), s_(shape), t_(request.types), hashes_(ngram_hashes(shape)) {}

  Result<ModelPlan> plan() {
    add_metadata();
    add_tokenizer(plan_.metadata, s_.vocabulary);
    TRY_OK(matrix("token_embd", t_.embedding, s_.vocabulary, s_.hidden));
    TRY_OK(matrix("output", t_.head, s_.vocabulary, s_.hidden));
    TRY_OK(mixer("output_hc", false));
    TRY_OK(ngram());
    for (uint32_t layer = 0; layer < s_.layers; ++layer) TRY_OK(block(layer));
    return std::move(plan_);
  }

 private:
  // --- Metadata (the specification of the format, section 1)

  template <class T>
  void key(std::string_view name, ValueType type, T value) {
    plan_.metadata.key(fmt::format("qwen4exp.{}", name), type, FileBuilder::number(value));
  }
  void size(std::string_view name, uint32_t value) { key(name, ValueType::kU32, value); }
  template <class T>
  void list(std::string_view name, ValueType type, const std::vector<T>& values) {
    std::string bytes;
    for (const T value : values) bytes += FileBuilder::number(value);
    plan_.metadata.array(fmt::format("qwen4exp.{}", name), type, values.size(), bytes);
  }

  void add_metadata() {
    plan_.metadata.key("general.architecture", ValueType::kString, FileBuilder::text("qwen4exp"))
        .key("general.type", ValueType::kString, FileBuilder::text("model"))
        .key("general.name", ValueType::kString, FileBuilder::text(request_.name))
        .key("general.quantization_version", ValueType::kU32, FileBuilder::number(uint32_t{2}))
        .key(kSyntheticKey, ValueType::kString, FileBuilder::text(request_.made_of));
    size("block_count", s_.layers);
    size("context_length", s_.context);
    size("embedding_length", s_.hidden);
    size("vocab_size", s_.vocabulary);
    size("attention.head_count", s_.heads);
    size("attention.head_count_kv", s_.kv_heads);
    size("attention.key_length", s_.head_dim);
    size("attention.value_length", s_.head_dim);
    key("attention.layer_norm_rms_epsilon", ValueType::kF32, 1e-6f);
    size("full_attention_interval", s_.attention_interval);
    size("attention.indexer.head_count", s_.indexer_heads);
    size("attention.indexer.key_length", s_.indexer_dim);
    size("attention.indexer.top_k", s_.indexer_top_k);
    const int32_t pairs = std::accumulate(s_.rope_sections.begin(), s_.rope_sections.end(), 0);
    size("rope.dimension_count", 2 * static_cast<uint32_t>(pairs));
    list("rope.dimension_sections", ValueType::kI32,
         std::vector(s_.rope_sections.begin(), s_.rope_sections.end()));
    key("rope.freq_base", ValueType::kF32, s_.rope_base);
    size("expert_count", s_.experts);
    size("expert_used_count", s_.experts_used);
    size("expert_feed_forward_length", s_.expert_width);
    size("expert_shared_feed_forward_length", s_.shared_width);
    size("ssm.conv_kernel", kConvTaps);
    size("ssm.state_size", s_.state_dim);
    size("ssm.group_count", s_.key_heads);
    size("ssm.time_step_rank", s_.value_heads);
    size("ssm.inner_size", s_.value_dim());
    size("hyper_connection.count", s_.streams);
    size("hyper_connection.low_rank", s_.mixer_rank);
    std::vector<int32_t> ratios;
    for (uint32_t layer = 0; layer < s_.layers; ++layer)
      ratios.push_back(s_.has_attention(layer) ? static_cast<int32_t>(s_.block_tokens) : 0);
    list("attention.compress_ratios", ValueType::kI32, ratios);
    add_ngram_metadata();
  }

  void add_ngram_metadata() {
    list("ple.layers", ValueType::kI32, std::vector{static_cast<int32_t>(s_.ngram_layer())});
    size("ple.ngram_size", s_.ngram_size);
    size("ple.heads_per_ngram", s_.ngram_heads);
    size("ple.conv_kernel", kConvTaps);
    size("ple.eos_token_id", kEndOfText);
    size("embedding_length_per_layer_input", s_.hidden / s_.ngram_rows());
    list("ple.layer_multipliers", ValueType::kU64, hashes_.multipliers);
    list("ple.head_offsets", ValueType::kU64, hashes_.offsets);
    list("ple.head_vocab_sizes", ValueType::kU64, hashes_.sizes);
  }

  // --- Tensors (section 2)

  void vector(const std::string& name, std::vector<uint64_t> dims, float deviation, float mean) {
    plan_.tensors.push_back({name, TensorType::kF32, std::move(dims), deviation, mean});
  }
  void norm(const std::string& name, uint64_t length) { vector(name, {length}, 0.1f, 1.0f); }

  // NAME.weight [cols, rows] or [cols, rows, count], its values so large that products keep the size of their
  // input. NVFP4 needs a NAME.scale beside it: its own scales do not reach such small values.
  Status matrix(const std::string& name, TensorType type, uint64_t rows, uint64_t cols, uint64_t count = 0) {
    const auto& info = gguf::tensor_type_info(type);
    if (find_encoder(type) == nullptr)
      return fail(Code::kInvalidArgument, "{}: weights cannot have the type {}", name, info.name);
    if (cols % info.block_values != 0) {
      return fail(Code::kInvalidArgument, "{}: rows of {} values are no multiple of {}'s blocks of {}", name,
                  cols, info.name, info.block_values);
    }
    constexpr float kScaledDeviation = 64;
    const bool scaled = type == TensorType::kNVFP4;
    const float deviation = 1 / std::sqrt(static_cast<float>(cols));
    const float scale = deviation / kScaledDeviation;
    std::vector<uint64_t> dims = {cols, rows};
    if (count > 0) dims.push_back(count);
    plan_.tensors.push_back(
        {name + ".weight", type, std::move(dims), scaled ? deviation / scale : deviation, 0});
    if (scaled) vector(name + ".scale", {std::max<uint64_t>(count, 1)}, 0, scale);
    return {};
  }

  Status mixer(const std::string& prefix, bool with_inject) {
    norm(prefix + "_norm.weight", s_.stream_dim());
    TRY_OK(matrix(prefix + "_down", t_.dense, s_.mixer_rank, s_.stream_dim()));
    TRY_OK(matrix(prefix + "_up", t_.dense, s_.stream_dim(), s_.mixer_rank));
    if (!with_inject) return {};
    return matrix(prefix + "_inject", t_.small, s_.streams, s_.stream_dim());
  }

  Status ngram() {
    const std::string prefix = fmt::format("blk.{}.ple_", s_.ngram_layer());
    TRY_OK(matrix("per_layer_token_embd", t_.table, hashes_.table_rows, s_.hidden / s_.ngram_rows()));
    TRY_OK(matrix(prefix + "key", t_.dense, s_.stream_dim(), s_.hidden));
    TRY_OK(matrix(prefix + "value", t_.dense, s_.hidden, s_.hidden));
    for (const char* part : {"norm_key", "norm_query", "norm_conv"})
      norm(fmt::format("{}{}.weight", prefix, part), s_.stream_dim());
    vector(prefix + "conv1d.weight", {kConvTaps, s_.stream_dim()}, 0.5f, 0);
    return {};
  }

  Status block(uint32_t layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    TRY_OK(mixer(prefix + "hc_attn", true));
    TRY_OK(mixer(prefix + "hc_ffn", true));
    TRY_OK(s_.has_attention(layer) ? attention(prefix) : delta_net(prefix));
    return experts(prefix);
  }

  Status delta_net(const std::string& prefix) {
    TRY_OK(matrix(prefix + "attn_qkv", t_.dense, s_.qkv_dim(), s_.hidden));
    TRY_OK(matrix(prefix + "attn_gate", t_.dense, s_.value_dim(), s_.hidden));
    TRY_OK(matrix(prefix + "ssm_alpha", t_.small, s_.value_heads, s_.hidden));
    TRY_OK(matrix(prefix + "ssm_beta", t_.small, s_.value_heads, s_.hidden));
    TRY_OK(matrix(prefix + "ssm_out", t_.dense, s_.hidden, s_.value_dim()));
    vector(prefix + "ssm_conv1d.weight", {kConvTaps, s_.qkv_dim()}, 0.5f, 0);
    vector(prefix + "ssm_a", {s_.value_heads}, 0.1f, -1.0f);  // decays
    vector(prefix + "ssm_dt.bias", {s_.value_heads}, 0.5f, 0);
    norm(prefix + "ssm_norm.weight", s_.state_dim);
    return {};
  }

  Status attention(const std::string& prefix) {
    const uint64_t kv_rows = uint64_t{s_.kv_heads} * s_.head_dim;
    TRY_OK(matrix(prefix + "attn_q", t_.dense, uint64_t{2} * s_.heads * s_.head_dim, s_.hidden));
    TRY_OK(matrix(prefix + "attn_k", t_.dense, kv_rows, s_.hidden));
    TRY_OK(matrix(prefix + "attn_v", t_.dense, kv_rows, s_.hidden));
    TRY_OK(matrix(prefix + "attn_output", t_.dense, s_.hidden, uint64_t{s_.heads} * s_.head_dim));
    TRY_OK(matrix(prefix + "indexer.q_proj", t_.dense, s_.indexer_heads * s_.indexer_dim, s_.hidden));
    TRY_OK(matrix(prefix + "indexer.k_proj", t_.dense, s_.indexer_dim, s_.hidden));
    for (const char* part : {"attn_q_norm", "attn_k_norm"})
      norm(fmt::format("{}{}.weight", prefix, part), s_.head_dim);
    for (const char* part : {"indexer.q_norm", "indexer.k_norm"})
      norm(fmt::format("{}{}.weight", prefix, part), s_.indexer_dim);
    return {};
  }

  Status experts(const std::string& prefix) {
    TRY_OK(matrix(prefix + "ffn_gate_inp", t_.small, s_.experts, s_.hidden));
    TRY_OK(matrix(prefix + "ffn_gate_exps", t_.gate_up, s_.expert_width, s_.hidden, s_.experts));
    TRY_OK(matrix(prefix + "ffn_up_exps", t_.gate_up, s_.expert_width, s_.hidden, s_.experts));
    TRY_OK(matrix(prefix + "ffn_down_exps", t_.down, s_.hidden, s_.expert_width, s_.experts));
    TRY_OK(matrix(prefix + "ffn_gate_inp_shexp", t_.small, 1, s_.hidden));
    TRY_OK(matrix(prefix + "ffn_gate_shexp", t_.dense, s_.shared_width, s_.hidden));
    TRY_OK(matrix(prefix + "ffn_up_shexp", t_.dense, s_.shared_width, s_.hidden));
    return matrix(prefix + "ffn_down_shexp", t_.dense, s_.hidden, s_.shared_width);
  }

  const ModelRequest& request_;
  const ModelShape& s_;
  const ModelTypes& t_;
  const NgramHashes hashes_;
  ModelPlan plan_;
};

}  // namespace

uint64_t TensorPlan::values() const {
  uint64_t count = 1;
  for (const uint64_t dim : dims) count *= dim;
  return count;
}

uint64_t TensorPlan::bytes() const {
  const auto& info = gguf::tensor_type_info(type);
  return values() / info.block_values * info.block_bytes;
}

uint64_t ModelPlan::bytes() const {
  uint64_t sum = 0;
  for (const TensorPlan& tensor : tensors) sum += tensor.bytes();
  return sum;
}

Result<ModelPlan> plan_model(const ModelRequest& request) {
  TRY(const ModelShape shape, completed(request.shape));
  return Planner(request, shape).plan();
}

Random random_of(uint64_t seed, std::string_view name) {
  uint64_t state = seed;
  for (const char c : name) state = Random(state + static_cast<uint8_t>(c)).next();
  return Random(state);
}

}  // namespace strata::synthetic
