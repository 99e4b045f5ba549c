#include "cpu-expert-worker/expert_job.h"

#include <algorithm>

#include "services/base/check.h"

namespace strata::cpu_expert_worker {
namespace {

uint64_t expert_bytes(const model::LayerExperts& layer) {
  return layer.gate_expert_bytes + layer.up_expert_bytes + layer.down_expert_bytes;
}

}  // namespace

ExpertJob::ExpertJob(std::span<const model::LayerExperts> layers, const shm::BoardGeometry& geometry)
    : layers_(layers), geometry_(geometry) {
  uint32_t experts_max = 0;
  for (const model::LayerExperts& layer : layers) {
    experts_max = std::max(experts_max, layer.count);
    CHECK(layer.hidden == geometry.hidden, "experts of {} values, a board of {}", layer.hidden,
          geometry.hidden);
  }
  runs_.reserve(experts_max);
  tokens_.reserve(geometry.pairs_max);
  outputs_.reserve(geometry.pairs_max);
}

Status ExpertJob::check(const shm::BoardRequest& request) const {
  const auto wrong = [&](const char* field, uint64_t value, uint64_t limit) {
    return fail(Code::kDataLoss, "board request {}: {} is {}, must be below {}", request.ticket, field, value,
                limit);
  };
  if (request.layer >= layers_.size()) return wrong("layer", request.layer, layers_.size());
  if (request.tokens > geometry_.tokens_max) return wrong("tokens", request.tokens, geometry_.tokens_max + 1);
  if (request.pair_count > geometry_.pairs_max)
    return wrong("pair_count", request.pair_count, geometry_.pairs_max + 1);
  if (request.numerics > static_cast<uint32_t>(quant::Numerics::kExact))
    return wrong("numerics", request.numerics, 2);
  if (request.pair_count == 0) return fail(Code::kDataLoss, "board request {}: no pairs", request.ticket);
  switch (request.activations) {
    case shm::ActivationKind::kF32:
      return {};
    case shm::ActivationKind::kQ8:
      if (expert::takes_q8_input(layers_[request.layer].expert(0),
                                 static_cast<quant::Numerics>(request.numerics)))
        return {};
      return fail(Code::kDataLoss, "board request {}: 8-bit activations for layer {}, which takes float32",
                  request.ticket, request.layer);
  }
  return wrong("activations", static_cast<uint32_t>(request.activations), 2);
}

Status ExpertJob::plan(const shm::Board& board, const shm::BoardRequest& request) {
  runs_.clear();
  tokens_.clear();
  outputs_.clear();
  for (uint32_t i = 0; i < request.pair_count; ++i) {
    const shm::BoardPair pair = board.pairs()[i];
    if (pair.token >= request.tokens || pair.expert >= layer_->count) {
      return fail(Code::kDataLoss, "board request {}: pair {} is token {} of {}, expert {} of {}",
                  request.ticket, i, pair.token, request.tokens, pair.expert, layer_->count);
    }
    if (runs_.empty() || runs_.back().expert != pair.expert) {
      if (!runs_.empty() && pair.expert < runs_.back().expert) {
        return fail(Code::kDataLoss, "board request {}: expert {} after expert {}", request.ticket,
                    pair.expert, runs_.back().expert);
      }
      runs_.push_back({.expert = pair.expert, .begin = i, .end = i});
    }
    runs_.back().end = i + 1;
    tokens_.push_back(pair.token);
    outputs_.push_back(board.part(i));
  }
  return {};
}

void ExpertJob::bind_input(const shm::Board& board, const shm::BoardRequest& request) {
  const std::byte* rows = board.activations(0);
  const uint64_t row_bytes = geometry_.activation_row_bytes();
  if (request.activations == shm::ActivationKind::kQ8) {
    q8_input_ = quant::Activations::from_q8(rows, request.tokens, geometry_.hidden, row_bytes);
    input_ = &*q8_input_;
    return;
  }
  const auto* floats = reinterpret_cast<const float*>(rows);
  if (!f32_input_) f32_input_.emplace(floats, request.tokens, geometry_.hidden, row_bytes / sizeof(float));
  f32_input_->rebind(floats, request.tokens, geometry_.hidden, row_bytes / sizeof(float));
  // Where one of gate and up is quantized and the other is not, both forms are needed. The rule is the same
  // on both sides, and so are the bits.
  if (quant::needs_q8(layer_->gate.type, numerics_) || quant::needs_q8(layer_->up.type, numerics_))
    f32_input_->ensure_q8();
  input_ = &*f32_input_;
}

Status ExpertJob::read(const shm::Board& board) {
  taken_at_ = std::chrono::steady_clock::now();
  const shm::BoardRequest request = board.header().request;
  TRY_OK(check(request));
  ticket_ = request.ticket;
  layer_ = &layers_[request.layer];
  numerics_ = static_cast<quant::Numerics>(request.numerics);
  TRY_OK(plan(board, request));
  bind_input(board, request);
  weight_bytes_ = runs_.size() * expert_bytes(*layer_);
  return {};
}

void ExpertJob::compute(uint32_t run, expert::ExpertScratch& scratch) const {
  const Run& which = runs_[run];
  const uint32_t count = which.end - which.begin;
  expert::compute_expert(layer_->expert(which.expert), *input_,
                         std::span(tokens_).subspan(which.begin, count),
                         std::span(outputs_).subspan(which.begin, count), numerics_, scratch);
}

}  // namespace strata::cpu_expert_worker
