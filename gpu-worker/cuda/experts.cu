#include "gpu-worker/cuda/experts.h"

#include <algorithm>

#include "gpu-worker/cuda/products_q8_source.h"
#include "gpu-worker/cuda/quantize.h"
#include "services/base/check.h"
#include "services/gguf/tensor_type.h"

namespace strata::gpu_worker::cuda {
namespace {

bool is_float(TensorType type) { return gguf::tensor_type_info(type).block_values == 1; }

uint32_t groups_max(const LayerExpertsView& experts, uint32_t pairs) {
  return std::min(pairs, experts.count);
}

// Rows of working memory belong to the pairs in the order of the list.
struct Workspace {
  FloatRows gate, up;  // (pairs, width)
  Q8Rows h;            // (pairs, width), or in `gate` as floats
  uint32_t* tile_ends = nullptr;
  uint64_t bytes = 0;
};
Workspace divide(const LayerExpertsView& experts, uint32_t pairs, std::byte* at) {
  Workspace w;
  const auto take = [&](uint64_t bytes) {
    std::byte* part = at + w.bytes;
    w.bytes += (bytes + 63) / 64 * 64;
    return part;
  };
  const uint64_t width = experts.width();
  w.gate = {reinterpret_cast<float*>(take(pairs * width * sizeof(float))), width};
  w.up = {reinterpret_cast<float*>(take(pairs * width * sizeof(float))), width};
  if (!is_float(experts.down.type)) {
    w.h = {.data = nullptr, .stride = q8_row_stride(experts.width()), .cols = experts.width()};
    w.h.data = take(pairs * w.h.stride);
  }
  w.tile_ends = reinterpret_cast<uint32_t*>(take(groups_max(experts, pairs) * sizeof(uint32_t)));
  return w;
}

SourceMatrix matrix_of(const ExpertPart& part, FloatRows out) {
  return {.offset = part.offset,
          .row_bytes = part.row_bytes,
          .rows = part.rows,
          .scales = part.scales,
          .out = out.data,
          .out_stride = out.stride};
}

// Products of the groups with parts that have not been computed yet.
class GroupProducts {
 public:
  GroupProducts(const ExpertsArgs& args, const Workspace& workspace, cudaStream_t stream) : stream_(stream) {
    launch_.source.hits = args.hits;
    launch_.source.top_k = args.top_k;
    launch_.pairs_max = args.rows * args.top_k;
    launch_.groups_max = groups_max(args.experts, launch_.pairs_max);
    launch_.tokens_expected = launch_.pairs_max / launch_.groups_max;
    if (args.groups_max != 0) launch_.groups_max = std::min(launch_.groups_max, args.groups_max);
    launch_.tokens_max = args.rows;
    launch_.tile_ends = workspace.tile_ends;
  }
  void to_pairs() { launch_.source.to_pairs = true; }
  void multiply(std::initializer_list<SourceMatrix> matrices, const ExpertPart& like, Q8Rows q8,
                FloatRows floats) {
    const bool of_floats = is_float(like.type);
    std::copy(matrices.begin(), matrices.end(), launch_.source.matrices);
    launch_.source.matrix_count = static_cast<uint32_t>(matrices.size());
    launch_.source.cols = like.cols;
    launch_.source.x = of_floats ? Q8Rows{.data = reinterpret_cast<std::byte*>(floats.data),
                                          .stride = floats.stride * sizeof(float),
                                          .cols = like.cols}
                                 : q8;
    CHECK(launch_.source.x.data != nullptr, "activations lack the form that {} needs",
          gguf::tensor_type_info(like.type).name);
    launch_.type = like.type;
    if (of_floats) {
      launch_products_float(launch_, stream_);
    } else {
      launch_products_q8(launch_, stream_);
    }
  }

 private:
  ProductLaunch launch_;
  cudaStream_t stream_;
};

}  // namespace

uint64_t experts_workspace_bytes(const LayerExpertsView& experts, uint32_t pairs) {
  return divide(experts, pairs, nullptr).bytes;
}

void compute_experts(const ExpertsArgs& args, cudaStream_t stream) {
  const LayerExpertsView& experts = args.experts;
  CHECK(experts.up.rows == experts.width() && experts.down.cols == experts.width() &&
            experts.gate.cols == experts.up.cols,
        "an expert of gate {}, up {}, down {}", experts.width(), experts.up.rows, experts.down.cols);
  const uint32_t pairs = args.rows * args.top_k;
  if (pairs == 0) return;
  const Workspace w = divide(experts, pairs, args.workspace);

  GroupProducts products(args, w, stream);
  const SourceMatrix gate = matrix_of(experts.gate, w.gate), up = matrix_of(experts.up, w.up);
  if (experts.gate.type == experts.up.type) {
    products.multiply({gate, up}, experts.gate, args.x_q8, args.x);
  } else {
    products.multiply({gate}, experts.gate, args.x_q8, args.x);
    products.multiply({up}, experts.up, args.x_q8, args.x);
  }
  silu_multiply({.gate = w.gate,
                 .up = w.up,
                 .rows = pairs,
                 .cols = experts.width(),
                 .row_count = &args.hits.counts->pairs,
                 .out = w.h.data == nullptr ? w.gate : FloatRows{},
                 .q8 = w.h},
                stream);
  products.to_pairs();
  products.multiply({matrix_of(experts.down, {args.parts, experts.hidden()})}, experts.down, w.h, w.gate);
}

}  // namespace strata::gpu_worker::cuda
