#include "gpu-worker/cuda/experts.h"

#include <algorithm>

#include "gpu-worker/cuda/experts_workspace.h"
#include "gpu-worker/cuda/products_q8_source.h"
#include "gpu-worker/cuda/quantize.h"
#include "services/base/check.h"
#include "services/gguf/tensor_type.h"

namespace strata::gpu_worker::cuda {
namespace {

bool is_float(TensorType type) { return gguf::tensor_type_info(type).block_values == 1; }

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
  GroupProducts(const ExpertsArgs& args, const ExpertsWorkspace& workspace, cudaStream_t stream)
      : stream_(stream) {
    launch_.source.hits = args.hits;
    launch_.source.top_k = args.top_k;
    launch_.pairs_max = args.rows * args.top_k;
    launch_.groups_max = expert_groups_max(args.experts, launch_.pairs_max);
    launch_.tokens_expected = launch_.pairs_max / launch_.groups_max;
    if (args.groups_max != 0) launch_.groups_max = std::min(launch_.groups_max, args.groups_max);
    launch_.tokens_max = args.rows;
    launch_.tile_ends = workspace.tile_ends;
  }
  // The products that follow are of h.
  void to_pairs() { launch_.source.to_pairs = true; }
  // Whether a product with weights of this type can take what follows along: gate and up end with h as
  // floats, or down quantizes it.
  bool takes_along(const ExpertPart& part) const { return !is_float(part.type) && computes_rows(launch_); }

  void multiply(std::initializer_list<SourceMatrix> matrices, const ExpertPart& like, Q8Rows q8,
                FloatRows floats) {
    launch_.source.x_floats = false;
    launch(matrices, like, is_float(like.type) ? as_bytes(floats, like.cols) : q8);
  }
  void multiply_silu(const SourceMatrix& gate, const SourceMatrix& up, const ExpertPart& like, Q8Rows q8) {
    launch_.source.silu = true;
    multiply({gate, up}, like, q8, {});
    launch_.source.silu = false;
  }
  void quantize_and_multiply(const SourceMatrix& matrix, const ExpertPart& like, FloatRows floats) {
    launch_.source.x_floats = true;
    launch({matrix}, like, as_bytes(floats, like.cols));
  }

 private:
  static Q8Rows as_bytes(FloatRows rows, uint32_t cols) {
    return {
        .data = reinterpret_cast<std::byte*>(rows.data), .stride = rows.stride * sizeof(float), .cols = cols};
  }
  void launch(std::initializer_list<SourceMatrix> matrices, const ExpertPart& like, Q8Rows x) {
    CHECK(x.data != nullptr, "activations lack the form that {} needs",
          gguf::tensor_type_info(like.type).name);
    std::copy(matrices.begin(), matrices.end(), launch_.source.matrices);
    launch_.source.matrix_count = static_cast<uint32_t>(matrices.size());
    launch_.source.cols = like.cols;
    launch_.source.x = x;
    launch_.type = like.type;
    if (is_float(like.type)) {
      launch_products_float(launch_, stream_);
    } else {
      launch_products_q8(launch_, stream_);
    }
  }

  ProductLaunch launch_;
  cudaStream_t stream_;
};

}  // namespace

void compute_experts(const ExpertsArgs& args, cudaStream_t stream) {
  const LayerExpertsView& experts = args.experts;
  CHECK(experts.up.rows == experts.width() && experts.down.cols == experts.width() &&
            experts.gate.cols == experts.up.cols,
        "an expert of gate {}, up {}, down {}", experts.width(), experts.up.rows, experts.down.cols);
  const uint32_t pairs = args.rows * args.top_k;
  if (pairs == 0) return;
  const ExpertsWorkspace w = divide_workspace(experts, pairs, args.workspace);

  GroupProducts products(args, w, stream);
  const SourceMatrix gate = matrix_of(experts.gate, w.gate), up = matrix_of(experts.up, w.up);
  const bool same_type = experts.gate.type == experts.up.type;
  const SourceMatrix down = matrix_of(experts.down, {args.parts, experts.hidden()});
  if (same_type && products.takes_along(experts.gate)) {
    products.multiply_silu(gate, up, experts.gate, args.x_q8);
    products.to_pairs();
    if (products.takes_along(experts.down)) {
      products.quantize_and_multiply(down, experts.down, w.gate);
    } else {
      products.multiply({down}, experts.down, {}, w.gate);
    }
    return;
  }
  if (same_type) {
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
  products.multiply({down}, experts.down, w.h, w.gate);
}

}  // namespace strata::gpu_worker::cuda
