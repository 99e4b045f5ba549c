#pragma once
// The routed experts of a layer whose weights lie in device memory ("hits"): parts[pair] = expert(x row) with
// the bits of expert::compute_expert, for all types and any number of tokens an expert.

#include "gpu-worker/cuda/cuda_words.h"
#include "gpu-worker/cuda/device_types.h"

namespace strata::gpu_worker::cuda {

// A pair is one choice of the router: pair = row * top_k + k. The pairs that one expert computes form a
// group.
struct HitGroup {
  const std::byte* record = nullptr;  // gate | up | down, in an arena slot or wherever it was copied to
  uint32_t expert = 0;                // its index in the layer
  uint32_t first = 0;                 // its pairs are pairs[first .. first + count) of the list
  uint32_t count = 0;
};

// Which pairs are computed here, written by another kernel (all in device memory). Groups are not empty, and
// their ranges follow each other without gaps: group 0 begins at 0, the last ends at pair_count.
struct HitCounts {
  uint32_t groups = 0;
  uint32_t pairs = 0;
};
struct HitList {
  const HitCounts* counts = nullptr;
  const HitGroup* groups = nullptr;  // at most min(rows * top_k, expert_count)
  const uint32_t* pairs = nullptr;   // pair ids in group order, at most rows * top_k
};

// One of the three matrices of a layer's experts: where it lies in a record, and the scale of each expert.
struct ExpertPart {
  TensorType type = TensorType::kF32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint64_t row_bytes = 0;
  uint64_t offset = 0;  // from the record's first byte, a multiple of 64; records begin at multiples of 16
  const float* scales = nullptr;  // (expert_count) in device memory; without: 1
};

struct LayerExpertsView {
  ExpertPart gate;  // (width, hidden)
  ExpertPart up;    // (width, hidden)
  ExpertPart down;  // (hidden, width)
  uint32_t count = 0;

  uint32_t hidden() const { return down.rows; }
  uint32_t width() const { return gate.rows; }
};

// Bytes of working memory for this many pairs (rows * top_k).
uint64_t experts_workspace_bytes(const LayerExpertsView& experts, uint32_t pairs);

// The number of groups and of pairs is read by the kernels; launches are shaped by rows and top_k alone.
// A record may be read up to the next multiple of 16 bytes behind its end.
// Moves the weights of each hit expert once while it has at most 8 tokens.
struct ExpertsArgs {
  LayerExpertsView experts;
  HitList hits;
  uint32_t rows = 0;  // of the window
  uint32_t top_k = 0;
  uint32_t groups_max = 0;  // of the list, if fewer than min(rows * top_k, experts.count); 0: that many
  Q8Rows x_q8 = {};         // (rows, hidden): if gate or up is quantized
  FloatRows x = {};         // (rows, hidden): if gate or up is of a float type
  float* parts = nullptr;   // (rows * top_k, hidden): only the rows of the listed pairs are written
  std::byte* workspace = nullptr;  // experts_workspace_bytes(experts, rows * top_k), aligned to 64
};
void compute_experts(const ExpertsArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
