#include "gpu-worker/cuda/device_model.h"

namespace strata::gpu_worker::cuda {
namespace {

class WeightPlacer {
 public:
  WeightPlacer(Placer& placer, std::vector<Upload>* uploads) : placer_(placer), uploads_(uploads) {}

  DeviceMatrix matrix(const model::Matrix& source) {
    return {.type = source.type,
            .rows = source.rows,
            .cols = source.cols,
            .data = copy(source.data, uint64_t{source.rows} * source.row_bytes),
            .row_bytes = source.row_bytes,
            .scale = source.scale};
  }
  const float* vector(const model::Vector& source) { return floats(source.data, source.size); }
  const float* floats(const float* source, uint64_t count) {
    return count == 0 ? nullptr : reinterpret_cast<const float*>(copy(source, count * sizeof(float)));
  }

 private:
  const std::byte* copy(const void* source, uint64_t bytes) {
    auto* target = placer_.take<std::byte>(bytes);
    if (uploads_ != nullptr && bytes > 0) uploads_->push_back({target, source, bytes});
    return target;
  }

  Placer& placer_;
  std::vector<Upload>* uploads_;
};

StreamMixer place_mixer(const model::StreamMixerWeights& source, const model::ModelConfig& config,
                        WeightPlacer& place) {
  StreamMixer mixer{.norm = place.vector(source.norm),
                    .down = place.matrix(source.down),
                    .up = place.matrix(source.up),
                    .inject = {},
                    .streams = config.streams,
                    .hidden = config.hidden,
                    .eps = config.eps};
  if (source.inject.rows > 0) mixer.inject = place.matrix(source.inject);
  return mixer;
}

DeviceDelta place_delta(const model::DeltaNetWeights& source, WeightPlacer& place) {
  return {.qkv = place.matrix(source.qkv),
          .gate = place.matrix(source.gate),
          .alpha = place.matrix(source.alpha),
          .beta = place.matrix(source.beta),
          .out = place.matrix(source.out),
          .conv = place.vector(source.conv),
          .a = place.vector(source.a),
          .dt_bias = place.vector(source.dt_bias),
          .norm = place.vector(source.norm)};
}

DeviceAttention place_attention(const model::AttentionWeights& source, bool sparse, WeightPlacer& place) {
  DeviceAttention attention{.q = place.matrix(source.q),
                            .k = place.matrix(source.k),
                            .v = place.matrix(source.v),
                            .out = place.matrix(source.out),
                            .indexer_q = {},
                            .indexer_k = {},
                            .q_norm = place.vector(source.q_norm),
                            .k_norm = place.vector(source.k_norm)};
  if (sparse) {
    attention.indexer_q = place.matrix(source.indexer_q);
    attention.indexer_k = place.matrix(source.indexer_k);
    attention.indexer_q_norm = place.vector(source.indexer_q_norm);
    attention.indexer_k_norm = place.vector(source.indexer_k_norm);
  }
  return attention;
}

ExpertPart place_part(const model::Matrix& source, uint64_t offset, const std::vector<float>& scales,
                      WeightPlacer& place) {
  return {.type = source.type,
          .rows = source.rows,
          .cols = source.cols,
          .row_bytes = source.row_bytes,
          .offset = offset,
          .scales = place.floats(scales.data(), scales.size())};
}

LayerExpertsView place_experts(const model::LayerExperts& source, WeightPlacer& place) {
  return {.gate = place_part(source.gate, 0, source.gate_scale, place),
          .up = place_part(source.up, source.up_offset(), source.up_scale, place),
          .down = place_part(source.down, source.down_offset(), source.down_scale, place),
          .count = source.count};
}

DeviceMoe place_moe(const model::MoeWeights& source, WeightPlacer& place) {
  return {.router = place.matrix(source.router),
          .shared_router = place.matrix(source.shared_router),
          .shared_gate = place.matrix(source.shared.gate),
          .shared_up = place.matrix(source.shared.up),
          .shared_down = place.matrix(source.shared.down),
          .experts = place_experts(source.experts, place),
          .record_bytes = source.experts.record_bytes()};
}

}  // namespace

DeviceModel place_model(const model::ModelWeights& weights, Placer& placer, std::vector<Upload>* uploads) {
  const model::ModelConfig& config = weights.config;
  WeightPlacer place(placer, uploads);
  DeviceModel model;
  for (uint32_t index = 0; index < config.layers; ++index) {
    const model::LayerWeights& source = weights.layers[index];
    DeviceLayer& layer = model.layers.emplace_back();
    layer.kind = source.kind;
    layer.mix_attn = place_mixer(source.mix_attn, config, place);
    layer.mix_ffn = place_mixer(source.mix_ffn, config, place);
    if (source.kind == model::LayerKind::kRecurrent) {
      layer.delta = place_delta(source.delta, place);
    } else {
      layer.attention = place_attention(source.attention, config.block_tokens[index] > 0, place);
    }
    layer.moe = place_moe(source.moe, place);
  }
  model.final_mixer = place_mixer(weights.final_mixer, config, place);
  model.ngram_layer = config.ngram_layer;
  if (config.ngram_layer >= 0) {
    model.ngram = {.key = place.matrix(weights.ngram.key),
                   .value = place.matrix(weights.ngram.value),
                   .norm_key = place.vector(weights.ngram.norm_key),
                   .norm_query = place.vector(weights.ngram.norm_query),
                   .norm_conv = place.vector(weights.ngram.norm_conv),
                   .conv = place.vector(weights.ngram.conv)};
  }
  model.head = place.matrix(weights.head);
  return model;
}

}  // namespace strata::gpu_worker::cuda
