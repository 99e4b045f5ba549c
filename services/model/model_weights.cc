#include "services/model/model_weights.h"

#include <algorithm>
#include <cstring>

#include "services/base/check.h"
#include "services/base/limits.h"
#include "services/model/tensor_binder.h"

namespace strata::model {
namespace {

constexpr std::size_t align_part(std::size_t bytes) {
  return (bytes + kExpertPartAlignment - 1) / kExpertPartAlignment * kExpertPartAlignment;
}

std::size_t matrix_bytes(const Matrix& matrix) { return matrix.rows * matrix.row_bytes; }

Matrix expert_matrix(const Matrix& first, const std::byte* data, const std::vector<float>& scale,
                     uint32_t index) {
  Matrix matrix = first;
  matrix.data = data;
  if (!scale.empty()) matrix.scale = scale[index];
  return matrix;
}

std::string block_name(uint32_t layer, std::string_view role) {
  return fmt::format("blk.{}.{}", layer, role);
}

// Binds the tensors of one model; names and shapes: gguf-qwen4exp section 2.
class Loader {
 public:
  Loader(const TensorBinder& binder, const ModelConfig& config) : binder_(binder), c_(config) {}

  Status load(ModelWeights& weights) const {
    TRY(weights.embedding, binder_.matrix("token_embd", c_.vocab, c_.hidden));
    weights.head = weights.embedding;
    if (binder_.has("output.weight")) {
      TRY(weights.head, binder_.matrix("output", c_.vocab, c_.hidden));
    }
    TRY(weights.final_mixer, mixer("output_hc", false));
    if (c_.ngram_layer >= 0) {
      TRY(weights.ngram, ngram(static_cast<uint32_t>(c_.ngram_layer)));
    }
    weights.layers.resize(c_.layers);
    for (uint32_t i = 0; i < c_.layers; ++i) TRY_OK(load_layer(i, weights.layers[i]));
    return {};
  }

  // The width is the layer's own: the row length of the down projection, with which gate and up must agree.
  Result<LayerExperts> experts(uint32_t layer) const {
    LayerExperts experts;
    experts.hidden = c_.hidden;
    TRY(auto down, binder_.experts(block_name(layer, "ffn_down_exps"), {.rows = c_.hidden}));
    experts.count = down.count;
    experts.width = down.first.cols;
    experts.down = down.first;
    experts.down_expert_bytes = matrix_bytes(down.first);
    experts.down_scale = std::move(down.scale);
    if (experts.count > kExpertsMax || experts.count < c_.experts_used) {
      return fail(Code::kInvalidArgument, "{}: layer {} has {} experts, expected {} (used per token) to {}",
                  binder_.path(), layer, experts.count, c_.experts_used, kExpertsMax);
    }
    TRY_OK(bind_gate_up(layer, experts));
    return experts;
  }

 private:
  Status load_layer(uint32_t i, LayerWeights& layer) const {
    layer.kind = c_.layer_kinds[i];
    TRY(layer.mix_attn, mixer(block_name(i, "hc_attn"), true));
    TRY(layer.mix_ffn, mixer(block_name(i, "hc_ffn"), true));
    if (layer.kind == LayerKind::kRecurrent) {
      TRY(layer.delta, delta_net(i));
    } else {
      TRY(layer.attention, attention(i));
    }
    TRY(layer.moe, moe(i));
    return {};
  }

  Result<Vector> plain(const std::string& name, uint64_t size) const {
    return binder_.vector(name, {{size}});
  }
  Result<Vector> grouped(const std::string& name) const {
    return binder_.vector(name, {{c_.stream_dim()}, {c_.hidden, c_.streams}});
  }

  Result<StreamMixerWeights> mixer(const std::string& prefix, bool with_inject) const {
    StreamMixerWeights mixer;
    TRY(mixer.norm, grouped(prefix + "_norm.weight"));
    TRY(mixer.down, binder_.matrix(prefix + "_down", c_.mixer_rank, c_.stream_dim()));
    TRY(mixer.up, binder_.matrix(prefix + "_up", c_.stream_dim(), c_.mixer_rank));
    if (with_inject) {
      TRY(mixer.inject, binder_.matrix(prefix + "_inject", c_.streams, c_.stream_dim()));
    }
    return mixer;
  }

  Result<DeltaNetWeights> delta_net(uint32_t i) const {
    DeltaNetWeights delta;
    TRY(delta.qkv, binder_.matrix(block_name(i, "attn_qkv"), c_.qkv_dim(), c_.hidden));
    TRY(delta.gate, binder_.matrix(block_name(i, "attn_gate"), c_.value_dim(), c_.hidden));
    TRY(delta.conv, binder_.vector(block_name(i, "ssm_conv1d.weight"), {{c_.conv_taps, c_.qkv_dim()}}));
    TRY(delta.alpha, binder_.matrix(block_name(i, "ssm_alpha"), c_.value_heads, c_.hidden));
    TRY(delta.beta, binder_.matrix(block_name(i, "ssm_beta"), c_.value_heads, c_.hidden));
    TRY(delta.a, plain(block_name(i, "ssm_a"), c_.value_heads));
    TRY(delta.dt_bias, plain(block_name(i, "ssm_dt.bias"), c_.value_heads));
    TRY(delta.norm, plain(block_name(i, "ssm_norm.weight"), c_.state_dim));
    TRY(delta.out, binder_.matrix(block_name(i, "ssm_out"), c_.hidden, c_.value_dim()));
    return delta;
  }

  Result<AttentionWeights> attention(uint32_t i) const {
    AttentionWeights attention;
    const uint32_t q_rows = c_.heads * 2 * c_.head_dim, kv_rows = c_.kv_heads * c_.head_dim;
    if (binder_.has(block_name(i, "attn_qkv.weight"))) {
      TRY(const Matrix joined,
          binder_.matrix(block_name(i, "attn_qkv"), uint64_t{q_rows} + 2 * uint64_t{kv_rows}, c_.hidden));
      attention.q = TensorBinder::slice(joined, 0, q_rows);
      attention.k = TensorBinder::slice(joined, q_rows, kv_rows);
      attention.v = TensorBinder::slice(joined, q_rows + kv_rows, kv_rows);
    } else {
      TRY(attention.q, binder_.matrix(block_name(i, "attn_q"), q_rows, c_.hidden));
      TRY(attention.k, binder_.matrix(block_name(i, "attn_k"), kv_rows, c_.hidden));
      TRY(attention.v, binder_.matrix(block_name(i, "attn_v"), kv_rows, c_.hidden));
    }
    TRY(attention.out,
        binder_.matrix(block_name(i, "attn_output"), c_.hidden, uint64_t{c_.heads} * c_.head_dim));
    TRY(attention.q_norm, plain(block_name(i, "attn_q_norm.weight"), c_.head_dim));
    TRY(attention.k_norm, plain(block_name(i, "attn_k_norm.weight"), c_.head_dim));
    if (c_.block_tokens[i] == 0) return attention;  // dense: an indexer would choose nothing
    TRY(attention.indexer_q, binder_.matrix(block_name(i, "indexer.q_proj"),
                                            uint64_t{c_.indexer_heads} * c_.indexer_dim, c_.hidden));
    TRY(attention.indexer_k, binder_.matrix(block_name(i, "indexer.k_proj"), c_.indexer_dim, c_.hidden));
    TRY(attention.indexer_q_norm, plain(block_name(i, "indexer.q_norm.weight"), c_.indexer_dim));
    TRY(attention.indexer_k_norm, plain(block_name(i, "indexer.k_norm.weight"), c_.indexer_dim));
    return attention;
  }

  Result<NgramWeights> ngram(uint32_t i) const {
    NgramWeights ngram;
    uint64_t rows = 0;
    for (uint32_t head = 0; head < c_.ngram_rows(); ++head)
      rows = std::max(rows, c_.ngram_offsets[head] + c_.ngram_sizes[head]);
    TRY(ngram.table, binder_.matrix_of_at_least("per_layer_token_embd", rows, c_.ngram_row));
    TRY(ngram.key, binder_.matrix(block_name(i, "ple_key"), c_.stream_dim(), c_.hidden));
    TRY(ngram.value, binder_.matrix(block_name(i, "ple_value"), c_.hidden, c_.hidden));
    TRY(ngram.norm_key, grouped(block_name(i, "ple_norm_key.weight")));
    TRY(ngram.norm_query, grouped(block_name(i, "ple_norm_query.weight")));
    TRY(ngram.norm_conv, grouped(block_name(i, "ple_norm_conv.weight")));
    TRY(ngram.conv, binder_.vector(block_name(i, "ple_conv1d.weight"), {{c_.ngram_taps, c_.stream_dim()}}));
    return ngram;
  }

  Result<MoeWeights> moe(uint32_t i) const {
    MoeWeights moe;
    TRY(moe.experts, experts(i));
    TRY(moe.router, binder_.matrix(block_name(i, "ffn_gate_inp"), moe.experts.count, c_.hidden));
    TRY(moe.shared_router, binder_.matrix(block_name(i, "ffn_gate_inp_shexp"), 1, c_.hidden));
    TRY(moe.shared.gate, binder_.matrix(block_name(i, "ffn_gate_shexp"), c_.shared_width, c_.hidden));
    TRY(moe.shared.up, binder_.matrix(block_name(i, "ffn_up_shexp"), c_.shared_width, c_.hidden));
    TRY(moe.shared.down, binder_.matrix(block_name(i, "ffn_down_shexp"), c_.hidden, c_.shared_width));
    return moe;
  }

  Status bind_gate_up(uint32_t layer, LayerExperts& experts) const {
    TensorBinder::ExpertShape shape{.count = experts.count, .rows = experts.width, .cols = c_.hidden};
    const std::string joined_name = block_name(layer, "ffn_gate_up_exps");
    if (binder_.has(joined_name + ".weight")) {
      shape.rows *= 2;
      TRY(auto joined, binder_.experts(joined_name, shape));
      experts.gate = TensorBinder::slice(joined.first, 0, experts.width);
      experts.up = TensorBinder::slice(joined.first, experts.width, experts.width);
      experts.gate_expert_bytes = experts.up_expert_bytes = matrix_bytes(joined.first);
      experts.gate_scale = joined.scale;
      experts.up_scale = std::move(joined.scale);
      return {};
    }
    TRY(auto gate, binder_.experts(block_name(layer, "ffn_gate_exps"), shape));
    TRY(auto up, binder_.experts(block_name(layer, "ffn_up_exps"), shape));
    experts.gate = gate.first;
    experts.up = up.first;
    experts.gate_expert_bytes = matrix_bytes(gate.first);
    experts.up_expert_bytes = matrix_bytes(up.first);
    experts.gate_scale = std::move(gate.scale);
    experts.up_scale = std::move(up.scale);
    return {};
  }

  const TensorBinder& binder_;
  const ModelConfig& c_;
};

}  // namespace

expert::ExpertWeights LayerExperts::expert(uint32_t index) const {
  CHECK(index < count, "expert {} of {}", index, count);
  return {.gate = expert_matrix(gate, gate.data + index * gate_expert_bytes, gate_scale, index),
          .up = expert_matrix(up, up.data + index * up_expert_bytes, up_scale, index),
          .down = expert_matrix(down, down.data + index * down_expert_bytes, down_scale, index)};
}

std::size_t LayerExperts::up_offset() const { return align_part(matrix_bytes(gate)); }
std::size_t LayerExperts::down_offset() const { return up_offset() + align_part(matrix_bytes(up)); }
std::size_t LayerExperts::record_bytes() const { return down_offset() + align_part(matrix_bytes(down)); }

expert::ExpertWeights LayerExperts::expert_at(const std::byte* record, uint32_t index) const {
  CHECK(index < count, "expert {} of {}", index, count);
  return {.gate = expert_matrix(gate, record, gate_scale, index),
          .up = expert_matrix(up, record + up_offset(), up_scale, index),
          .down = expert_matrix(down, record + down_offset(), down_scale, index)};
}

std::array<RecordPart, 3> LayerExperts::record_parts(uint32_t index) const {
  const expert::ExpertWeights source = expert(index);
  const auto part = [](const Matrix& matrix, std::size_t offset) {
    return RecordPart{{matrix.data, matrix_bytes(matrix)}, offset};
  };
  return {part(source.gate, 0), part(source.up, up_offset()), part(source.down, down_offset())};
}

void LayerExperts::write_record(uint32_t index, std::byte* record) const {
  for (const RecordPart& part : record_parts(index))
    std::memcpy(record + part.offset, part.bytes.data(), part.bytes.size());
}

std::size_t ModelWeights::max_expert_record_bytes() const {
  std::size_t largest = 0;
  for (const LayerWeights& layer : layers) largest = std::max(largest, layer.moe.experts.record_bytes());
  return largest;
}

Result<ModelWeights> load_model(const gguf::GgufFile& file) {
  TRY(ModelConfig config, read_model_config(file));
  ModelWeights weights{.file = file, .config = std::move(config)};
  const TensorBinder binder(weights.file, weights.widened);
  TRY_OK(Loader(binder, weights.config).load(weights));
  return weights;
}

Result<ExpertTable> load_experts(const gguf::GgufFile& file) {
  TRY(ModelConfig config, read_model_config(file));
  ExpertTable table{.file = file, .config = std::move(config)};
  std::vector<std::vector<float>> widened;  // for scales only, which are copied
  const TensorBinder binder(table.file, widened);
  const Loader loader(binder, table.config);
  for (uint32_t layer = 0; layer < table.config.layers; ++layer) {
    TRY(LayerExperts experts, loader.experts(layer));
    table.max_record_bytes = std::max(table.max_record_bytes, experts.record_bytes());
    table.layers.push_back(std::move(experts));
  }
  return table;
}

}  // namespace strata::model
