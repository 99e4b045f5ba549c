#include "services/model/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "services/model/row_kernels.h"

namespace strata::model {
namespace {

// Multiplications that are worth handing to another thread.
constexpr uint64_t kMultipliesPerPiece = 1 << 16;

uint32_t grain_for(uint64_t multiplies_per_item) {
  return static_cast<uint32_t>(
      std::max<uint64_t>(1, kMultipliesPerPiece / std::max<uint64_t>(1, multiplies_per_item)));
}

}  // namespace

void choose_blocks(std::span<const float> scores, uint32_t count, std::span<float> scratch,
                   std::vector<uint32_t>& chosen) {
  chosen.clear();
  if (count == 0) return;
  std::copy(scores.begin(), scores.end(), scratch.begin());
  const auto nth = scratch.begin() + (count - 1);
  std::nth_element(scratch.begin(), nth, scratch.end(), std::greater<>());
  const float smallest = *nth;
  const auto above = static_cast<uint32_t>(
      std::count_if(scores.begin(), scores.end(), [&](float s) { return s > smallest; }));
  uint32_t equal = count - above;
  for (uint32_t b = 0; b < scores.size(); ++b) {
    if (scores[b] > smallest) {
      chosen.push_back(b);
    } else if (scores[b] == smallest && equal > 0) {
      chosen.push_back(b);
      --equal;
    }
  }
}

SparseAttention::SparseAttention(const ModelConfig& config, quant::Numerics numerics, uint32_t rows_max,
                                 const Rope& rope, Parallel& parallel, std::size_t tile_floats)
    : config_(config),
      numerics_(numerics),
      rope_(rope),
      parallel_(parallel),
      tile_floats_(tile_floats),
      queries_(std::size_t{rows_max} * config.heads * 2 * config.head_dim),
      keys_(std::size_t{rows_max} * config.kv_heads * config.head_dim),
      values_(std::size_t{rows_max} * config.kv_heads * config.head_dim),
      indexer_queries_(std::size_t{rows_max} * config.indexer_heads * config.indexer_dim),
      indexer_keys_(std::size_t{rows_max} * config.indexer_dim),
      heads_(std::size_t{rows_max} * config.heads * config.head_dim),
      block_turns_(std::size_t{rows_max} * 2 * rope.pairs()),
      plans_(rows_max) {}

uint64_t SparseAttention::row_bytes(const ModelConfig& config) {
  const uint64_t heads_dim = uint64_t{config.heads} * config.head_dim;
  const uint64_t kv_dim = uint64_t{config.kv_heads} * config.head_dim;
  const uint64_t indexer = (uint64_t{config.indexer_heads} + 1) * config.indexer_dim;
  uint32_t chosen = 0;
  for (const uint32_t block : config.block_tokens)
    chosen = std::max(chosen, block == 0 ? 0 : config.indexer_top_k / block);
  return (3 * heads_dim + 2 * kv_dim + indexer + config.rope.dims / 2 * 2) * sizeof(float) + sizeof(RowPlan) +
         chosen * sizeof(uint32_t);
}

uint64_t SparseAttention::tile_bytes(const ModelConfig& config, uint32_t rows, uint32_t context_tokens) {
  uint64_t most = 0;
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    if (config.layer_kinds[layer] != LayerKind::kAttention) continue;
    // As plan_tile() has it at the end of a full sequence.
    const uint64_t block = config.block_tokens[layer];
    const uint64_t blocks = block == 0 ? 0 : context_tokens / block;
    const bool chooses = block > 0 && blocks > config.indexer_top_k / block;
    const uint64_t attended = chooses ? config.indexer_top_k + block - 1 : context_tokens;
    const uint64_t row_blocks = chooses ? blocks : 0, row_scores = attended * config.heads;
    const uint64_t tile = std::clamp<uint64_t>(kTileFloats / (row_blocks + row_scores), 1, rows);
    most = std::max(most, 2 * tile * row_blocks +
                              std::min(rows * row_scores, std::max<uint64_t>(kTileFloats, row_scores)));
  }
  return most * sizeof(float);
}

void SparseAttention::run(const AttentionWeights& weights, uint32_t layer, const Window& window,
                          quant::Activations& input, float* output, const BlocksObserver& observer) {
  const uint32_t q_dim = config_.heads * 2 * config_.head_dim, kv_dim = config_.kv_heads * config_.head_dim;
  const Product q{&weights.q, &input, queries_.data(), q_dim, numerics_};
  const Product k{&weights.k, &input, keys_.data(), kv_dim, numerics_};
  const Product v{&weights.v, &input, values_.data(), kv_dim, numerics_};
  if (config_.block_tokens[layer] > 0) {
    // What chooses blocks stays in float32: a rounded input would flip choices.
    multiply_all(
        parallel_,
        {q,
         k,
         v,
         {&weights.indexer_q, &input, indexer_queries_.data(),
          std::size_t{config_.indexer_heads} * config_.indexer_dim, quant::Numerics::kExact},
         {&weights.indexer_k, &input, indexer_keys_.data(), config_.indexer_dim, quant::Numerics::kExact}});
  } else {
    multiply_all(parallel_, {q, k, v});
  }
  prepare_rows(weights, layer, window);
  if (config_.block_tokens[layer] > 0) finish_blocks(weights, layer, window);
  for (uint32_t row = 0; row < window.rows();) {
    row = plan_tile(layer, window, row);
    choose(layer, window);
    if (observer) {
      for (uint32_t i = 0; i < tile_rows_; ++i) observer(layer, plans_[i].row, plans_[i].chosen);
    }
    attend(layer, window);
  }
  const uint32_t heads_dim = config_.heads * config_.head_dim;
  quant::Activations heads(heads_.data(), window.rows(), heads_dim, heads_dim);
  multiply_all(parallel_, {{&weights.out, &heads, output, config_.hidden, numerics_}});
}

// Norms and rotations of every row; keys and values go to their place in the sequence.
void SparseAttention::prepare_rows(const AttentionWeights& weights, uint32_t layer, const Window& window) {
  const uint32_t dim = config_.head_dim, kv_dim = config_.kv_heads * dim, indexer_dim = config_.indexer_dim;
  const bool sparse = config_.block_tokens[layer] > 0;
  parallel_.run(window.rows(), 2, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) {
      const float* turn = window.turns.data() + std::size_t{row} * 2 * rope_.pairs();
      const auto norm_and_turn = [&](const float* source, const Vector& norm, float* target) {
        rms_norm(source, norm.data, config_.eps, norm.size, target);
        rope_.rotate(turn, target);
      };
      for (uint32_t h = 0; h < config_.heads; ++h) {
        float* query = queries_.data() + (std::size_t{row} * config_.heads + h) * 2 * dim;
        norm_and_turn(query, weights.q_norm, query);
      }
      const RowPlace& place = window.places[row];
      AttentionState& state = window.segments[place.segment].sequence->attention[layer];
      const std::size_t from = std::size_t{row} * kv_dim, to = std::size_t{place.position} * kv_dim;
      for (uint32_t h = 0; h < config_.kv_heads; ++h) {
        norm_and_turn(keys_.data() + from + std::size_t{h} * dim, weights.k_norm,
                      state.k.data() + to + std::size_t{h} * dim);
      }
      std::memcpy(state.v.data() + to, values_.data() + from, kv_dim * sizeof(float));
      for (uint32_t h = 0; sparse && h < config_.indexer_heads; ++h) {
        float* query = indexer_queries_.data() + (std::size_t{row} * config_.indexer_heads + h) * indexer_dim;
        norm_and_turn(query, weights.indexer_q_norm, query);
      }
    }
  });
}

// The key of every block whose last token is in the window; then the raw keys of the unfinished tail are
// kept.
void SparseAttention::finish_blocks(const AttentionWeights& weights, uint32_t layer, const Window& window) {
  const uint32_t block = config_.block_tokens[layer], dim = config_.indexer_dim;
  const std::size_t row_bytes = dim * sizeof(float);
  parallel_.run(window.rows(), 8, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) {
      const RowPlace& place = window.places[row];
      if ((place.position + 1) % block != 0) continue;
      const Segment& segment = window.segments[place.segment];
      AttentionState& state = segment.sequence->attention[layer];
      float* key = state.pooled.data() + std::size_t{place.position / block} * dim;
      std::fill_n(key, dim, 0.0f);
      for (uint32_t i = 0; i < block; ++i) {
        const uint32_t back = block - 1 - i;
        const float* raw = back <= row - segment.row_begin
                               ? indexer_keys_.data() + std::size_t{row - back} * dim
                               : state.raw.data() + std::size_t{i} * dim;
        for (uint32_t j = 0; j < dim; ++j) key[j] += raw[j];
      }
      for (uint32_t j = 0; j < dim; ++j) key[j] /= static_cast<float>(block);
      rms_norm(key, weights.indexer_k_norm.data, config_.eps, dim, key);
      float* turn = block_turns_.data() + std::size_t{row} * 2 * rope_.pairs();
      rope_.turn_at(place.position + 1 - block, turn);
      rope_.rotate(turn, key);
    }
  });
  for (const Segment& segment : window.segments) {
    std::vector<float>& tail = segment.sequence->attention[layer].raw;
    for_each_stretch(window, segment, [&](const Segment& stretch, const FixedState* captured) {
      const uint32_t end = stretch.position + stretch.row_count;
      for (uint32_t position = std::max(end / block * block, stretch.position); position < end; ++position) {
        const float* raw =
            indexer_keys_.data() + std::size_t{stretch.row_begin + position - stretch.position} * dim;
        std::memcpy(tail.data() + std::size_t{position % block} * dim, raw, row_bytes);
      }
      if (captured != nullptr) std::ranges::copy(tail, captured->layers[layer].raw);
    });
  }
}

// Plans as many rows from `first_row` on as fit the scratch, one at least; gives the row behind them.
uint32_t SparseAttention::plan_tile(uint32_t layer, const Window& window, uint32_t first_row) {
  const uint32_t block = config_.block_tokens[layer];
  std::size_t block_floats = 0, score_floats = 0;
  tile_rows_ = 0;
  for (uint32_t row = first_row; row < window.rows(); ++row) {
    RowPlan& plan = plans_[tile_rows_];
    const uint32_t seen = window.places[row].position + 1;
    plan.row = row;
    plan.blocks = block == 0 ? 0 : seen / block;
    plan.chooses = block > 0 && plan.blocks > config_.indexer_top_k / block;
    plan.tail_begin = plan.chooses ? plan.blocks * block : 0;
    plan.attended = plan.chooses ? config_.indexer_top_k + seen - plan.tail_begin : seen;
    plan.block_scores = block_floats;
    plan.scores = score_floats;
    if (plan.chooses) block_floats += plan.blocks;
    score_floats += std::size_t{plan.attended} * config_.heads;
    if (tile_rows_ > 0 && block_floats + score_floats > tile_floats_) {
      block_floats = plan.block_scores;
      score_floats = plan.scores;
      break;
    }
    ++tile_rows_;
  }
  if (block_scores_.size() < block_floats) {
    block_scores_.resize(block_floats);
    block_scratch_.resize(block_floats);
  }
  if (scores_.size() < score_floats) scores_.resize(score_floats);
  return first_row + tile_rows_;
}

// score_b = sum over the indexer's heads, ascending, of relu(query . block key). The constant 1/sqrt(di) is
// left out.
void SparseAttention::choose(uint32_t layer, const Window& window) {
  const uint32_t block = config_.block_tokens[layer], dim = config_.indexer_dim,
                 indexer_heads = config_.indexer_heads;
  uint32_t most_blocks = 0;
  for (uint32_t i = 0; i < tile_rows_; ++i) {
    RowPlan& plan = plans_[i];
    if (plan.chooses) {
      most_blocks = std::max(most_blocks, plan.blocks);
    } else {
      plan.chosen.resize(plan.blocks);
      for (uint32_t b = 0; b < plan.blocks; ++b) plan.chosen[b] = b;
    }
  }
  if (most_blocks == 0) return;

  const uint32_t blocks_per_piece = grain_for(uint64_t{indexer_heads} * dim);
  for_each_row_piece(
      parallel_, tile_rows_, most_blocks, blocks_per_piece, [&](uint32_t i, uint32_t begin, uint32_t end) {
        const RowPlan& plan = plans_[i];
        if (!plan.chooses) return;
        const float* pooled =
            window.segments[window.places[plan.row].segment].sequence->attention[layer].pooled.data();
        const float* queries = indexer_queries_.data() + std::size_t{plan.row} * indexer_heads * dim;
        for (uint32_t b = begin; b < std::min(end, plan.blocks); ++b) {
          float score = 0;
          for (uint32_t h = 0; h < indexer_heads; ++h) {
            const float dot =
                quant::dot_f32(queries + std::size_t{h} * dim, pooled + std::size_t{b} * dim, dim);
            score += dot > 0 ? dot : 0.0f;
          }
          block_scores_[plan.block_scores + b] = score;
        }
      });
  parallel_.run(tile_rows_, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      RowPlan& plan = plans_[i];
      if (!plan.chooses) continue;
      const auto scores = std::span(block_scores_).subspan(plan.block_scores, plan.blocks);
      const auto scratch = std::span(block_scratch_).subspan(plan.block_scores, plan.blocks);
      choose_blocks(scores, config_.indexer_top_k / block, scratch, plan.chosen);
    }
  });
}

void SparseAttention::attend(uint32_t layer, const Window& window) {
  const uint64_t cost = uint64_t{plans_[tile_rows_ - 1].attended} * config_.head_dim * 2;
  parallel_.run(tile_rows_ * config_.heads, grain_for(cost), [&](uint32_t begin, uint32_t end) {
    for (uint32_t item = begin; item < end; ++item) {
      const RowPlan& plan = plans_[item / config_.heads];
      const RowPlace& place = window.places[plan.row];
      const uint32_t block = config_.block_tokens[layer];
      attend_head(plan, window.segments[place.segment].sequence->attention[layer],
                  {block, place.position, item % config_.heads});
    }
  });
}

// softmax(q . k / sqrt(d)) over the attended tokens, ascending; the values are summed in that order by fma;
// then the head's gate.
void SparseAttention::attend_head(const RowPlan& plan, const AttentionState& state, const HeadPlace& place) {
  const uint32_t dim = config_.head_dim;
  const std::size_t token_stride = std::size_t{config_.kv_heads} * dim;
  const std::size_t kv_offset = std::size_t{place.head / (config_.heads / config_.kv_heads)} * dim;
  const std::size_t head_row = std::size_t{plan.row} * config_.heads + place.head;
  const float* query = queries_.data() + head_row * 2 * dim;
  const float* gate = query + dim;
  float* scores = scores_.data() + plan.scores + std::size_t{place.head} * plan.attended;
  float* out = heads_.data() + head_row * dim;

  const auto for_each_token = [&](const auto& visit) {
    uint32_t at = 0;
    for (uint32_t i = 0; plan.chooses && i < plan.chosen.size(); ++i) {
      for (uint32_t j = 0; j < place.block; ++j) visit(at++, plan.chosen[i] * place.block + j);
    }
    for (uint32_t token = plan.tail_begin; token <= place.position; ++token) visit(at++, token);
  };

  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  float largest = -std::numeric_limits<float>::infinity();
  for_each_token([&](uint32_t at, uint32_t token) {
    const float score = quant::dot_f32(query, state.k.data() + token * token_stride + kv_offset, dim) * scale;
    scores[at] = score;
    largest = score > largest ? score : largest;
  });
  row_kernels().exp_below(scores, largest, plan.attended);
  const float total = quant::sum_f32(scores, plan.attended);
  std::fill_n(out, dim, 0.0f);
  for_each_token([&](uint32_t at, uint32_t token) {
    quant::add_scaled_f32(scores[at], state.v.data() + token * token_stride + kv_offset, out, dim);
  });
  row_kernels().gate(out, 1.0f / total, gate, dim);
}

}  // namespace strata::model
