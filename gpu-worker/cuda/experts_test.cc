// Routed experts against expert::compute_expert, to the bit.

#include "gpu-worker/cuda/experts.h"

#include "gpu-worker/cuda/dense_test_support.h"
#include "services/expert/expert.h"

namespace strata::gpu_worker::cuda {
namespace {

using namespace tests;
using gguf::TensorType;

constexpr float kUntouched = -77.25f;

struct Case {
  TensorType gate, up, down;
  uint32_t hidden = 256, width = 256;
  uint32_t rows = 1, top_k = 2;
  uint32_t experts = 4;
  bool scales = false;
  uint32_t misses = 0;        // of the experts: the first ones
  bool count_groups = false;  // the caller knows how many groups there are
};

// The experts of a layer in records, each behind the other in slots as the arena has them.
class Layer {
 public:
  Layer(Generator& random, const Case& c) {
    view_.count = c.experts;
    uint64_t offset = 0;
    const auto part = [&](TensorType type, uint32_t rows, uint32_t cols) {
      const auto& info = gguf::tensor_type_info(type);
      ExpertPart p{.type = type, .rows = rows, .cols = cols, .row_bytes = 0, .offset = offset};
      p.row_bytes = uint64_t{cols} / info.block_values * info.block_bytes;
      offset += (rows * p.row_bytes + 63) / 64 * 64;
      return p;
    };
    view_.gate = part(c.gate, c.width, c.hidden);
    view_.up = part(c.up, c.width, c.hidden);
    view_.down = part(c.down, c.hidden, c.width);
    slot_bytes_ = offset + 64;
    bytes_.resize(slot_bytes_ * c.experts);
    for (uint32_t e = 0; e < c.experts; ++e) {
      for (const ExpertPart* p : {&view_.gate, &view_.up, &view_.down}) {
        const auto weights = quant::tests::weights(random, p->type, p->rows, p->cols);
        std::copy(weights.begin(), weights.end(),
                  bytes_.begin() + static_cast<std::ptrdiff_t>(slot(e) + p->offset));
      }
    }
    stored_ = on_device(bytes_);
    if (!c.scales) return;
    for (auto& scales : scales_) scales = random_floats(random, c.experts, 2.0f);
    for (int i = 0; i < 3; ++i) device_scales_[i] = on_device(scales_[i]);
    view_.gate.scales = device_scales_[0].data();
    view_.up.scales = device_scales_[1].data();
    view_.down.scales = device_scales_[2].data();
  }

  const LayerExpertsView& view() const { return view_; }
  const std::byte* device_record(uint32_t expert) const { return stored_.data() + slot(expert); }
  expert::ExpertWeights host_expert(uint32_t expert) const {
    const auto matrix = [&](const ExpertPart& p, int i) {
      return quant::Matrix{.type = p.type,
                           .rows = p.rows,
                           .cols = p.cols,
                           .data = bytes_.data() + slot(expert) + p.offset,
                           .row_bytes = p.row_bytes,
                           .scale = scales_[i].empty() ? 1.0f : scales_[i][expert]};
    };
    return {.gate = matrix(view_.gate, 0), .up = matrix(view_.up, 1), .down = matrix(view_.down, 2)};
  }

 private:
  // Not in the order of the experts.
  uint64_t slot(uint32_t expert) const { return (view_.count - 1 - expert) * slot_bytes_; }

  LayerExpertsView view_;
  uint64_t slot_bytes_ = 0;
  std::vector<std::byte> bytes_;
  DeviceBuffer<std::byte> stored_;
  std::vector<float> scales_[3];
  DeviceBuffer<float> device_scales_[3];
};

// Each row chooses top_k different experts; those below `misses` are computed elsewhere.
struct Routing {
  std::vector<HitGroup> groups;
  std::vector<uint32_t> pairs;
};
Routing route(Generator& random, const Case& c, const Layer& layer) {
  std::vector<std::vector<uint32_t>> of_expert(c.experts);
  for (uint32_t row = 0; row < c.rows; ++row) {
    const uint32_t first = random.below(c.experts);
    for (uint32_t k = 0; k < c.top_k; ++k) of_expert[(first + k) % c.experts].push_back(row * c.top_k + k);
  }
  Routing r;
  for (uint32_t e = c.misses; e < c.experts; ++e) {
    if (of_expert[e].empty()) continue;
    r.groups.push_back({.record = layer.device_record(e),
                        .expert = e,
                        .first = static_cast<uint32_t>(r.pairs.size()),
                        .count = static_cast<uint32_t>(of_expert[e].size())});
    r.pairs.insert(r.pairs.end(), of_expert[e].begin(), of_expert[e].end());
  }
  return r;
}

std::vector<float> expected_parts(const Case& c, const Layer& layer, const Routing& routing,
                                  const std::vector<float>& x) {
  std::vector<float> parts(std::size_t{c.rows} * c.top_k * c.hidden, kUntouched);
  quant::Activations activations(x.data(), c.rows, c.hidden, c.hidden);
  if (quant::is_quantized(c.gate) || quant::is_quantized(c.up)) activations.ensure_q8();
  expert::ExpertScratch scratch;
  for (const HitGroup& group : routing.groups) {
    std::vector<uint32_t> tokens;
    std::vector<float*> y;
    for (uint32_t i = 0; i < group.count; ++i) {
      const uint32_t pair = routing.pairs[group.first + i];
      tokens.push_back(pair / c.top_k);
      y.push_back(parts.data() + std::size_t{pair} * c.hidden);
    }
    expert::compute_expert(layer.host_expert(group.expert), activations, tokens, y,
                           quant::Numerics::kReproducible, scratch);
  }
  return parts;
}

void expect_experts(const Case& c) {
  SCOPED_TRACE(
      testing::Message() << gguf::tensor_type_info(c.gate).name << " " << gguf::tensor_type_info(c.up).name
                         << " " << gguf::tensor_type_info(c.down).name << " " << c.hidden << " x " << c.width
                         << ", " << c.rows << " rows of " << c.top_k << " of " << c.experts);
  Generator random(c.hidden + c.rows * 7 + c.width);
  const Layer layer(random, c);
  const Routing routing = route(random, c, layer);
  const auto x = quant::tests::activations(random, std::size_t{c.rows} * c.hidden);

  const uint64_t stride = q8_row_stride(c.hidden);
  std::vector<std::byte> q8(c.rows * stride);
  if (c.hidden % 32 == 0) {
    for (uint32_t row = 0; row < c.rows; ++row)
      quant::quantize_q8({x.data() + std::size_t{row} * c.hidden, c.hidden}, q8.data() + row * stride);
  }
  const auto device_x = on_device(x);
  const auto device_q8 = on_device(q8);
  const uint32_t pairs = c.rows * c.top_k;
  auto stored_pairs = routing.pairs;
  stored_pairs.resize(pairs, 0xffffffffu);
  auto stored_groups = routing.groups;
  stored_groups.resize(std::min(pairs, c.experts));
  const auto device_pairs = on_device(stored_pairs);
  const auto device_groups = on_device(stored_groups);
  const auto counts =
      on_device(std::vector<HitCounts>{{.groups = static_cast<uint32_t>(routing.groups.size()),
                                        .pairs = static_cast<uint32_t>(routing.pairs.size())}});
  const auto parts = on_device(std::vector<float>(std::size_t{pairs} * c.hidden, kUntouched));
  const auto workspace = device_zeros<std::byte>(experts_workspace_bytes(layer.view(), pairs));
  compute_experts(
      {.experts = layer.view(),
       .hits = {.counts = counts.data(), .groups = device_groups.data(), .pairs = device_pairs.data()},
       .rows = c.rows,
       .top_k = c.top_k,
       .x_q8 = {.data = device_q8.data(), .stride = stride, .cols = c.hidden},
       .x = {device_x.data(), c.hidden},
       .parts = parts.data(),
       .workspace = workspace.data()},
      nullptr);
  expect_same_bits(values_of(parts), expected_parts(c, layer, routing, x), "part");
}

TEST(Experts, EveryTypeOneToken) {
  for (const TensorType type : quant::tests::all_types())
    expect_experts({.gate = type, .up = type, .down = type, .hidden = 512, .scales = true});
}

TEST(Experts, EveryTypeSeveralTokens) {
  for (const TensorType type : quant::tests::all_types())
    expect_experts({.gate = type, .up = type, .down = type, .rows = 6, .top_k = 3, .misses = 1});
}

TEST(Experts, ShapesOfTheRealModelAndSmallOnes) {
  expect_experts({.gate = TensorType::kQ2_0,
                  .up = TensorType::kQ2_0,
                  .down = TensorType::kQ4_0,
                  .hidden = 2560,
                  .width = 640});
  expect_experts({.gate = TensorType::kQ8_0,
                  .up = TensorType::kQ8_0,
                  .down = TensorType::kQ8_0,
                  .hidden = 64,
                  .width = 32,
                  .rows = 5});
  expect_experts({.gate = TensorType::kQ4_0,
                  .up = TensorType::kQ4_0,
                  .down = TensorType::kQ4_0,
                  .hidden = 32,
                  .width = 96});
  expect_experts({.gate = TensorType::kF16,
                  .up = TensorType::kF16,
                  .down = TensorType::kF32,
                  .hidden = 33,
                  .width = 7,
                  .rows = 3});
}

TEST(Experts, MixedTypes) {
  expect_experts({.gate = TensorType::kQ2_K,
                  .up = TensorType::kQ4_K,
                  .down = TensorType::kQ4_0,
                  .rows = 4,
                  .scales = true});
  expect_experts({.gate = TensorType::kBF16, .up = TensorType::kQ8_0, .down = TensorType::kF16, .rows = 2});
  expect_experts({.gate = TensorType::kQ8_0, .up = TensorType::kQ8_0, .down = TensorType::kF32, .rows = 2});
  expect_experts({.gate = TensorType::kF32, .up = TensorType::kF32, .down = TensorType::kQ6_K, .rows = 2});
}

TEST(Experts, AnyNumberOfTokens) {
  for (const uint32_t rows : {2u, 8u, 9u, 17u, 64u})
    expect_experts({.gate = TensorType::kQ4_0,
                    .up = TensorType::kQ4_0,
                    .down = TensorType::kQ8_0,
                    .hidden = 96,
                    .width = 64,
                    .rows = rows,
                    .top_k = 3,
                    .experts = 9,
                    .scales = true});
}

// More than 12 tokens for every expert that there may be: computed in tiles.
TEST(Experts, TilesOfManyTokens) {
  for (const TensorType type :
       {TensorType::kQ2_0, TensorType::kQ4_K, TensorType::kQ6_K, TensorType::kNVFP4}) {
    expect_experts({.gate = type,
                    .up = type,
                    .down = type,
                    .rows = 150,
                    .top_k = 2,
                    .experts = 5,
                    .scales = true,
                    .misses = 1});
  }
  // Large tiles.
  for (const TensorType type : {TensorType::kQ2_K, TensorType::kQ4_0}) {
    expect_experts({.gate = type,
                    .up = type,
                    .down = type,
                    .rows = 260,
                    .top_k = 2,
                    .experts = 5,
                    .scales = true,
                    .misses = 1});
  }
  // More groups than a warp has lanes.
  expect_experts({.gate = TensorType::kQ8_0,
                  .up = TensorType::kQ8_0,
                  .down = TensorType::kQ8_0,
                  .hidden = 32,
                  .width = 32,
                  .rows = 230,
                  .top_k = 5,
                  .experts = 40,
                  .misses = 3});
}

TEST(Experts, ListsOfKnownLength) {
  for (const uint32_t rows : {1u, 90u}) {
    expect_experts({.gate = TensorType::kQ4_0,
                    .up = TensorType::kQ4_0,
                    .down = TensorType::kQ4_0,
                    .hidden = 64,
                    .width = 64,
                    .rows = rows,
                    .experts = 6,
                    .misses = 2,
                    .count_groups = true});
  }
}

TEST(Experts, NoneAtAll) {
  for (const uint32_t rows : {1u, 150u}) {
    expect_experts({.gate = TensorType::kQ8_0,
                    .up = TensorType::kQ8_0,
                    .down = TensorType::kQ8_0,
                    .hidden = 64,
                    .width = 32,
                    .rows = rows,
                    .experts = 3,
                    .misses = 3});
    expect_experts({.gate = TensorType::kF32,
                    .up = TensorType::kF32,
                    .down = TensorType::kF32,
                    .hidden = 64,
                    .width = 32,
                    .rows = rows,
                    .experts = 3,
                    .misses = 3});
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
