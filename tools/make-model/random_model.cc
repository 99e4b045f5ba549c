#include "tools/make-model/random_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "services/gguf/file_builder.h"
#include "tools/make-model/encoder.h"
#include "tools/make-model/random.h"
#include "tools/make-model/tokenizer_data.h"

namespace strata::make_model {
namespace {

using gguf::FileBuilder;
using gguf::ValueType;

constexpr uint32_t kHeadDim = 64;  // of attention, the delta-net and the indexer
constexpr uint32_t kStreams = 2;
constexpr uint32_t kConvTaps = 4;
constexpr uint32_t kIndexerHeads = 2;
constexpr uint32_t kBlockTokens = 4;
constexpr uint32_t kTopK = 64;

class ModelWriter {
 public:
  ModelWriter(const ModelShape& shape, const ModelTypes& types, uint64_t seed)
      : s_(shape), t_(types), seed_(seed) {
    if (s_.vocabulary == 0) s_.vocabulary = kVocabularyMin;
  }

  Result<std::string> write() {
    TRY_OK(check());
    add_metadata();
    add_tokenizer(file_, s_.vocabulary);
    TRY_OK(matrix("token_embd", t_.embedding, s_.vocabulary, s_.hidden));
    TRY_OK(matrix("output", t_.head, s_.vocabulary, s_.hidden));
    TRY_OK(mixer("output_hc", false));
    TRY_OK(ngram());
    for (uint32_t layer = 0; layer < s_.layers; ++layer) TRY_OK(block(layer));
    return file_.build();
  }

 private:
  uint32_t heads() const { return s_.hidden / kHeadDim; }
  uint32_t stream_dim() const { return kStreams * s_.hidden; }
  uint32_t qkv_dim() const { return 2 * s_.hidden; }  // half as many key heads as value heads
  bool has_attention(uint32_t layer) const { return (layer + 1) % s_.attention_interval == 0; }
  // The second layer, as in the large models, unless that has attention.
  uint32_t ngram_layer() const { return s_.layers > 1 && !has_attention(1) ? 1 : 0; }
  uint32_t ngram_rows() const { return (s_.ngram_size - 1) * s_.ngram_heads; }

  Status check() const {
    const auto require = [](bool holds, std::string_view text) -> Status {
      if (holds) return {};
      return fail(Code::kInvalidArgument, "{}", text);
    };
    TRY_OK(require(s_.layers > 0 && s_.attention_interval > 1,
                   "at least one layer, of which the first has no attention"));
    TRY_OK(
        require(s_.hidden > 0 && s_.hidden % (2 * kHeadDim) == 0, "the hidden size is no multiple of 128"));
    TRY_OK(require(s_.experts_used > 0 && s_.experts_used <= s_.experts, "more experts used than there are"));
    TRY_OK(require(s_.ngram_size > 1 && s_.ngram_heads > 0 && s_.hidden % ngram_rows() == 0,
                   "the n-gram rows of a token do not make the hidden size"));
    TRY_OK(require(s_.table_rows > 0, "an n-gram table without rows"));
    return require(s_.vocabulary >= kVocabularyMin, "a vocabulary smaller than the tokenizer's");
  }

  // --- Metadata (the specification of the format, section 1)

  template <class T>
  void key(std::string_view name, ValueType type, T value) {
    file_.key(fmt::format("qwen4exp.{}", name), type, FileBuilder::number(value));
  }
  void size(std::string_view name, uint32_t value) { key(name, ValueType::kU32, value); }
  template <class T>
  void list(std::string_view name, ValueType type, const std::vector<T>& values) {
    std::string bytes;
    for (const T value : values) bytes += FileBuilder::number(value);
    file_.array(fmt::format("qwen4exp.{}", name), type, values.size(), bytes);
  }

  void add_metadata() {
    file_.key("general.architecture", ValueType::kString, FileBuilder::text("qwen4exp"))
        .key("general.type", ValueType::kString, FileBuilder::text("model"))
        .key("general.name", ValueType::kString, FileBuilder::text(fmt::format("random {}", seed_)))
        .key("general.quantization_version", ValueType::kU32, FileBuilder::number(uint32_t{2}));
    size("block_count", s_.layers);
    size("context_length", s_.context);
    size("embedding_length", s_.hidden);
    size("vocab_size", s_.vocabulary);
    size("attention.head_count", heads());
    size("attention.head_count_kv", heads() / 2);
    size("attention.key_length", kHeadDim);
    size("attention.value_length", kHeadDim);
    key("attention.layer_norm_rms_epsilon", ValueType::kF32, 1e-6f);
    size("full_attention_interval", s_.attention_interval);
    size("attention.indexer.head_count", kIndexerHeads);
    size("attention.indexer.key_length", kHeadDim);
    size("attention.indexer.top_k", kTopK);
    size("rope.dimension_count", kHeadDim / 2);
    list<int32_t>("rope.dimension_sections", ValueType::kI32, {6, 5, 5, 0});
    key("rope.freq_base", ValueType::kF32, 1e5f);
    size("expert_count", s_.experts);
    size("expert_used_count", s_.experts_used);
    size("expert_feed_forward_length", s_.expert_width);
    size("expert_shared_feed_forward_length", s_.shared_width);
    size("ssm.conv_kernel", kConvTaps);
    size("ssm.state_size", kHeadDim);
    size("ssm.group_count", heads() / 2);
    size("ssm.time_step_rank", heads());
    size("ssm.inner_size", s_.hidden);
    size("hyper_connection.count", kStreams);
    size("hyper_connection.low_rank", s_.mixer_rank);
    std::vector<int32_t> ratios;
    for (uint32_t layer = 0; layer < s_.layers; ++layer)
      ratios.push_back(has_attention(layer) ? static_cast<int32_t>(kBlockTokens) : 0);
    list("attention.compress_ratios", ValueType::kI32, ratios);
    add_ngram_metadata();
  }

  void add_ngram_metadata() {
    list("ple.layers", ValueType::kI32, std::vector{static_cast<int32_t>(ngram_layer())});
    size("ple.ngram_size", s_.ngram_size);
    size("ple.heads_per_ngram", s_.ngram_heads);
    size("ple.conv_kernel", kConvTaps);
    size("ple.eos_token_id", kEndOfText);
    size("embedding_length_per_layer_input", s_.hidden / ngram_rows());
    Random random = random_of("ple.layer_multipliers");
    std::vector<uint64_t> multipliers, offsets;
    for (uint32_t i = 0; i < s_.ngram_size; ++i) multipliers.push_back(random.next() >> 16 | 1);
    for (uint64_t head = 0; head < ngram_rows(); ++head) offsets.push_back(head * s_.table_rows);
    list("ple.layer_multipliers", ValueType::kU64, multipliers);
    list("ple.head_offsets", ValueType::kU64, offsets);
    list("ple.head_vocab_sizes", ValueType::kU64, std::vector<uint64_t>(ngram_rows(), s_.table_rows));
  }

  // --- Tensors (section 2)

  Random random_of(std::string_view name) const {
    uint64_t state = seed_;
    for (const char c : name) state = Random(state + static_cast<uint8_t>(c)).next();
    return Random(state);
  }

  void vector(std::string_view name, std::vector<uint64_t> dims, float deviation, float mean) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    const std::vector<float> values = random_of(name).normals(count, deviation, mean);
    file_.tensor(name, TensorType::kF32, dims, encode_values(*find_encoder(TensorType::kF32), values));
  }
  void norm(const std::string& name, uint64_t length) { vector(name, {length}, 0.1f, 1.0f); }

  // NAME.weight [cols, rows] or [cols, rows, count], its values so large that products keep the size of their
  // input. NVFP4 needs a NAME.scale beside it: its own scales do not reach such small values.
  Status matrix(const std::string& name, TensorType type, uint64_t rows, uint64_t cols, uint64_t count = 0) {
    const auto& info = gguf::tensor_type_info(type);
    const Encoder* encoder = find_encoder(type);
    if (encoder == nullptr)
      return fail(Code::kInvalidArgument, "{}: weights cannot have the type {}", name, info.name);
    if (cols % info.block_values != 0) {
      return fail(Code::kInvalidArgument, "{}: rows of {} values are no multiple of {}'s blocks of {}", name,
                  cols, info.name, info.block_values);
    }
    Random random = random_of(name);
    const float deviation = 1 / std::sqrt(static_cast<float>(cols));
    std::string data, scales;
    for (uint64_t i = 0; i < std::max<uint64_t>(count, 1); ++i) {
      constexpr float kScaledDeviation = 64;
      const float scale = type == TensorType::kNVFP4 ? deviation / kScaledDeviation : 1.0f;
      data += encode_values(*encoder, random.normals(rows * cols, deviation / scale));
      scales += FileBuilder::number(scale);
    }
    std::vector<uint64_t> dims = {cols, rows};
    if (count > 0) dims.push_back(count);
    file_.tensor(name + ".weight", type, dims, data);
    if (type == TensorType::kNVFP4)
      file_.tensor(name + ".scale", TensorType::kF32, {std::max<uint64_t>(count, 1)}, scales);
    return {};
  }

  Status mixer(const std::string& prefix, bool with_inject) {
    norm(prefix + "_norm.weight", stream_dim());
    TRY_OK(matrix(prefix + "_down", t_.dense, s_.mixer_rank, stream_dim()));
    TRY_OK(matrix(prefix + "_up", t_.dense, stream_dim(), s_.mixer_rank));
    if (!with_inject) return {};
    return matrix(prefix + "_inject", t_.small, kStreams, stream_dim());
  }

  Status ngram() {
    const std::string prefix = fmt::format("blk.{}.ple_", ngram_layer());
    TRY_OK(matrix("per_layer_token_embd", t_.table, uint64_t{ngram_rows()} * s_.table_rows,
                  s_.hidden / ngram_rows()));
    TRY_OK(matrix(prefix + "key", t_.dense, stream_dim(), s_.hidden));
    TRY_OK(matrix(prefix + "value", t_.dense, s_.hidden, s_.hidden));
    for (const char* part : {"norm_key", "norm_query", "norm_conv"})
      norm(fmt::format("{}{}.weight", prefix, part), stream_dim());
    vector(prefix + "conv1d.weight", {kConvTaps, stream_dim()}, 0.5f, 0);
    return {};
  }

  Status block(uint32_t layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    TRY_OK(mixer(prefix + "hc_attn", true));
    TRY_OK(mixer(prefix + "hc_ffn", true));
    TRY_OK(has_attention(layer) ? attention(prefix) : delta_net(prefix));
    return experts(prefix);
  }

  Status delta_net(const std::string& prefix) {
    TRY_OK(matrix(prefix + "attn_qkv", t_.dense, qkv_dim(), s_.hidden));
    TRY_OK(matrix(prefix + "attn_gate", t_.dense, s_.hidden, s_.hidden));
    TRY_OK(matrix(prefix + "ssm_alpha", t_.small, heads(), s_.hidden));
    TRY_OK(matrix(prefix + "ssm_beta", t_.small, heads(), s_.hidden));
    TRY_OK(matrix(prefix + "ssm_out", t_.dense, s_.hidden, s_.hidden));
    vector(prefix + "ssm_conv1d.weight", {kConvTaps, qkv_dim()}, 0.5f, 0);
    vector(prefix + "ssm_a", {heads()}, 0.1f, -1.0f);  // decays
    vector(prefix + "ssm_dt.bias", {heads()}, 0.5f, 0);
    norm(prefix + "ssm_norm.weight", kHeadDim);
    return {};
  }

  Status attention(const std::string& prefix) {
    TRY_OK(matrix(prefix + "attn_q", t_.dense, 2 * s_.hidden, s_.hidden));
    TRY_OK(matrix(prefix + "attn_k", t_.dense, s_.hidden / 2, s_.hidden));
    TRY_OK(matrix(prefix + "attn_v", t_.dense, s_.hidden / 2, s_.hidden));
    TRY_OK(matrix(prefix + "attn_output", t_.dense, s_.hidden, s_.hidden));
    TRY_OK(matrix(prefix + "indexer.q_proj", t_.dense, kIndexerHeads * kHeadDim, s_.hidden));
    TRY_OK(matrix(prefix + "indexer.k_proj", t_.dense, kHeadDim, s_.hidden));
    for (const char* part : {"attn_q_norm", "attn_k_norm", "indexer.q_norm", "indexer.k_norm"})
      norm(fmt::format("{}{}.weight", prefix, part), kHeadDim);
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

  ModelShape s_;
  const ModelTypes t_;
  const uint64_t seed_;
  gguf::FileBuilder file_;
};

}  // namespace

Result<std::string> make_model(const ModelShape& shape, const ModelTypes& types, uint64_t seed) {
  return ModelWriter(shape, types, seed).write();
}

}  // namespace strata::make_model
