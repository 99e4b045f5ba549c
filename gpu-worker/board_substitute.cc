#include "gpu-worker/board_substitute.h"

#include <algorithm>
#include <atomic>

#include "services/base/check.h"

namespace strata::gpu_worker {

BoardSubstitute::BoardSubstitute(const model::ModelWeights& weights, model::Parallel& parallel)
    : weights_(weights), parallel_(parallel), scratch_(parallel.threads()) {}

// Tickets and rings are counted alike (a request is one ring), so the bell alone says whether there is one:
// acquire, so that the request behind it is visible.
bool BoardSubstitute::is_asked(const shm::Board& board) {
  const shm::BoardHeader& header = board.header();
  const uint32_t rung = header.work.seq.load(std::memory_order_acquire);
  return rung != static_cast<uint32_t>(header.done_ticket.load(std::memory_order_relaxed));
}

uint32_t BoardSubstitute::answer(const shm::Board& board) {
  shm::BoardHeader& header = board.header();
  const shm::BoardRequest request = header.request;
  const shm::BoardGeometry& geometry = board.geometry();
  CHECK(request.layer < weights_.layers.size() && request.tokens <= geometry.tokens_max &&
            request.pair_count <= geometry.pairs_max,
        "layer {}, {} tokens, {} pairs", request.layer, request.tokens, request.pair_count);
  const model::LayerExperts& experts = weights_.layers[request.layer].moe.experts;

  tokens_.clear();
  parts_.clear();
  begins_.clear();
  const shm::BoardPair* pairs = board.pairs();
  for (uint32_t i = 0; i < request.pair_count; ++i) {
    if (i == 0 || pairs[i].expert != pairs[i - 1].expert) begins_.push_back(i);
    tokens_.push_back(pairs[i].token);
    parts_.push_back(board.part(i));
  }
  begins_.push_back(request.pair_count);

  const bool q8 = request.activations == shm::ActivationKind::kQ8;
  const auto stride = static_cast<std::size_t>(geometry.activation_row_bytes());
  quant::Activations input =
      q8 ? quant::Activations::from_q8(board.activations(0), request.tokens, geometry.hidden, stride)
         : quant::Activations(reinterpret_cast<const float*>(board.activations(0)), request.tokens,
                              geometry.hidden, stride / sizeof(float));
  const auto numerics = static_cast<quant::Numerics>(request.numerics);
  // Float activations come where one of gate and up takes them; the other may want the 8-bit form.
  if (!q8 && (quant::needs_q8(experts.gate.type, numerics) || quant::needs_q8(experts.up.type, numerics)))
    input.ensure_q8();
  std::atomic<uint32_t> next{0};  // relaxed: it only deals out numbers
  const auto count = static_cast<uint32_t>(begins_.size()) - 1;
  const uint32_t lanes = std::min(count, static_cast<uint32_t>(scratch_.size()));
  parallel_.run(lanes, 1, [&](uint32_t first, uint32_t last) {
    for (uint32_t lane = first; lane < last; ++lane) {
      for (uint32_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        const uint32_t begin = begins_[i], size = begins_[i + 1] - begin;
        expert::compute_expert(experts.expert(pairs[begin].expert), input,
                               std::span(tokens_).subspan(begin, size),
                               std::span(parts_).subspan(begin, size), numerics, scratch_[lane]);
      }
    }
  });
  header.done_ticket.store(request.ticket, std::memory_order_release);
  header.done.ring();
  return request.pair_count;
}

}  // namespace strata::gpu_worker
