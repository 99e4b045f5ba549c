#pragma once
// The model's weights as kernels read them: everything but the routed experts and the tables that are looked
// up on the host (token embedding and n-gram table: a few rows a token).

#include <vector>

#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/experts.h"
#include "gpu-worker/cuda/placer.h"
#include "gpu-worker/cuda/stream_mixer.h"
#include "services/model/model_weights.h"

namespace strata::gpu_worker::cuda {

struct DeviceDelta {
  DeviceMatrix qkv, gate, alpha, beta, out;
  const float* conv = nullptr;     // (channels, K1)
  const float* a = nullptr;        // (nv)
  const float* dt_bias = nullptr;  // (nv)
  const float* norm = nullptr;     // (s)
};

struct DeviceAttention {
  DeviceMatrix q, k, v, out, indexer_q, indexer_k;
  const float* q_norm = nullptr;  // (d), k_norm likewise
  const float* k_norm = nullptr;
  const float* indexer_q_norm = nullptr;  // (di), indexer_k_norm likewise
  const float* indexer_k_norm = nullptr;
};

struct DeviceMoe {
  DeviceMatrix router;         // (E, H)
  DeviceMatrix shared_router;  // (1, H)
  DeviceMatrix shared_gate, shared_up, shared_down;
  LayerExpertsView experts;  // of records, see model::LayerExperts
  uint64_t record_bytes = 0;
};

struct DeviceNgram {
  DeviceMatrix key, value;
  const float* norm_key = nullptr;  // (C*H), norm_query and norm_conv likewise
  const float* norm_query = nullptr;
  const float* norm_conv = nullptr;
  const float* conv = nullptr;  // (C*H, K2)
};

struct DeviceLayer {
  model::LayerKind kind = model::LayerKind::kRecurrent;
  StreamMixer mix_attn, mix_ffn;
  DeviceDelta delta;
  DeviceAttention attention;
  DeviceMoe moe;
};

struct DeviceModel {
  std::vector<DeviceLayer> layers;
  StreamMixer final_mixer;
  DeviceNgram ngram;
  int32_t ngram_layer = -1;  // which begins with it
  DeviceMatrix head;
};

// A piece of host memory that belongs at a place on the device. The source lives as long as the model's
// weights.
struct Upload {
  void* target = nullptr;
  const void* source = nullptr;
  uint64_t bytes = 0;
};

// Places every weight; `uploads`, if not null, gets what has to be copied where.
DeviceModel place_model(const model::ModelWeights& weights, Placer& placer, std::vector<Upload>* uploads);

}  // namespace strata::gpu_worker::cuda
