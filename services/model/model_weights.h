#pragma once
// Every tensor of the model bound to its role, shape-checked, pointing into the mapped file (nothing is
// copied).

#include <array>
#include <span>
#include <vector>

#include "services/expert/expert.h"
#include "services/gguf/gguf_file.h"
#include "services/model/model_config.h"
#include "services/quant/quant.h"

namespace strata::model {

using quant::Matrix;

// A float vector of the file; F16 and BF16 are widened once at load, F32 is used in place.
struct Vector {
  const float* data = nullptr;
  uint32_t size = 0;
};

struct StreamMixerWeights {  // hc_attn_*, hc_ffn_*, output_hc_*
  Vector norm;               // (C*H) grouped
  Matrix down;               // (R, C*H)
  Matrix up;                 // (C*H, R)
  Matrix inject;             // (C, C*H); rows == 0 for the final read
};

struct DeltaNetWeights {
  Matrix qkv;          // (2*nk*s + nv*s, H)
  Matrix gate;         // (nv*s, H)
  Vector conv;         // (channels, K1)
  Matrix alpha, beta;  // (nv, H)
  Vector a, dt_bias;   // (nv)
  Vector norm;         // (s)
  Matrix out;          // (H, nv*s)
};

struct AttentionWeights {
  Matrix q;                               // (nq*2*d, H), per head query then gate
  Matrix k, v;                            // (nkv*d, H)
  Matrix out;                             // (H, nq*d)
  Vector q_norm, k_norm;                  // (d)
  Matrix indexer_q;                       // (ni*di, H)
  Matrix indexer_k;                       // (di, H)
  Vector indexer_q_norm, indexer_k_norm;  // (di)
};

struct NgramWeights {
  Matrix table;                            // (rows, dp)
  Matrix key;                              // (C*H, H)
  Matrix value;                            // (H, H)
  Vector norm_key, norm_query, norm_conv;  // (C*H) grouped
  Vector conv;                             // (C*H, K2)
};

// One of the three matrices of an expert, and where it lies in a record.
struct RecordPart {
  std::span<const std::byte> bytes;  // in the mapped file
  std::size_t offset = 0;
};

// The routed experts of one layer. Types, width and count are the layer's own.
struct LayerExperts {
  uint32_t count = 0;
  uint32_t hidden = 0;
  uint32_t width = 0;
  Matrix gate, up, down;  // of expert 0; expert e lies `*_expert_bytes * e` further
  std::size_t gate_expert_bytes = 0, up_expert_bytes = 0, down_expert_bytes = 0;
  std::vector<float> gate_scale, up_scale, down_scale;  // NAME.scale, one per expert; empty: 1

  expert::ExpertWeights expert(uint32_t index) const;  // in the mapped file
  // An arena slot holds gate | up | down, each part beginning at a multiple of kExpertPartAlignment.
  std::size_t record_bytes() const;
  std::size_t up_offset() const;  // of a part within a record; gate is at 0
  std::size_t down_offset() const;
  // The same expert read from a record (an arena slot) instead of the file.
  expert::ExpertWeights expert_at(const std::byte* record, uint32_t index) const;
  std::array<RecordPart, 3> record_parts(uint32_t index) const;
  // Copies the expert's three pieces from the file into a record.
  void write_record(uint32_t index, std::byte* record) const;
};
inline constexpr std::size_t kExpertPartAlignment = 64;

struct MoeWeights {
  Matrix router;  // (E, H)
  LayerExperts experts;
  Matrix shared_router;  // (1, H)
  expert::ExpertWeights shared;
};

struct LayerWeights {
  LayerKind kind = LayerKind::kRecurrent;
  StreamMixerWeights mix_attn, mix_ffn;
  DeltaNetWeights delta;       // kRecurrent
  AttentionWeights attention;  // kAttention
  MoeWeights moe;
};

struct ModelWeights {
  gguf::GgufFile file;  // keeps the mapping alive
  ModelConfig config;
  Matrix embedding = {};  // (V, H)
  Matrix head = {};       // (V, H); the embedding when the file has no output.weight
  StreamMixerWeights final_mixer = {};
  NgramWeights ngram = {};  // used when config.ngram_layer >= 0
  std::vector<LayerWeights> layers = {};
  std::vector<std::vector<float>> widened = {};  // storage behind Vectors that were not F32

  std::size_t max_expert_record_bytes() const;  // the arena's slot size: any slot can hold any expert
};

// Errors name the tensor with expected and found shape, or the tensor with an unsupported type.
Result<ModelWeights> load_model(const gguf::GgufFile& file);
// Only the routed experts of every trunk layer: what an expert worker or the cache manager needs.
struct ExpertTable {
  gguf::GgufFile file;
  ModelConfig config;
  std::vector<LayerExperts> layers = {};
  std::size_t max_record_bytes = 0;
};
Result<ExpertTable> load_experts(const gguf::GgufFile& file);

}  // namespace strata::model
