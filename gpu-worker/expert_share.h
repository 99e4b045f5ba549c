#pragma once
// What one expert worker computes of a layer: whole experts, sent over its board in one request, or in
// several when more tokens than the board takes have a miss for this worker.

#include <cstdint>
#include <span>
#include <vector>

#include "gpu-worker/expert_groups.h"
#include "gpu-worker/expert_workers.h"

namespace strata::gpu_worker {

// The layer that shares are made of; everything is borrowed.
struct ShareContext {
  const model::RoutedLayer* routed = nullptr;
  const ExpertGroups* groups = nullptr;
  shm::ActivationKind activations = shm::ActivationKind::kQ8;
  quant::Numerics numerics = quant::Numerics::kReproducible;
};

class ExpertShare {
 public:
  static constexpr uint64_t kPairBytes = sizeof(uint32_t), kRowBytes = 2 * sizeof(uint32_t);
  ExpertShare(uint32_t tokens_max, uint32_t pairs_max, uint32_t experts_max);

  // Makes the share empty.
  void begin(AttachedWorker& worker);
  void add(const ExpertGroup& group) { groups_.push_back(group); }
  bool empty() const { return groups_.empty(); }
  AttachedWorker& worker() const { return *worker_; }
  std::span<const ExpertGroup> groups() const { return groups_; }

  // Numbers the tokens that have a pair here; then sends the first request.
  void send_first(const ShareContext& context);
  // Sends the next request; only when the one before is done. False: that was the last.
  bool send_next(const ShareContext& context);

  bool single_request() const { return row_count_ <= worker_->board.geometry().tokens_max; }
  uint64_t ticket() const { return ticket_; }  // of the request on the board
  uint32_t pair_count() const { return static_cast<uint32_t>(pairs_.size()); }
  // Pair (token * top_k + k) behind each part of the request on the board.
  std::span<const uint32_t> pairs() const { return pairs_; }

 private:
  void number_rows(const ShareContext& context);
  void send_rows(const ShareContext& context);
  void write_activations(const ShareContext& context) const;
  void write_pairs(const ShareContext& context);

  AttachedWorker* worker_ = nullptr;
  std::vector<ExpertGroup> groups_;
  // Rows are the tokens with a pair here, renumbered without gaps; a request takes tokens_max of them at a
  // time.
  std::vector<uint32_t> row_of_token_;  // (tokens of the window)
  std::vector<uint32_t> token_of_row_;
  uint32_t row_count_ = 0;
  // The request on the board.
  uint32_t first_row_ = 0;
  uint32_t rows_ = 0;
  std::vector<uint32_t> pairs_;
  uint64_t ticket_ = 0;
};

}  // namespace strata::gpu_worker
