#include "gpu-worker/expert_share.h"

#include <algorithm>
#include <cstring>

#include "services/base/check.h"

namespace strata::gpu_worker {
namespace {

constexpr uint32_t kNoRow = UINT32_MAX;

}  // namespace

ExpertShare::ExpertShare(uint32_t tokens_max, uint32_t pairs_max, uint32_t experts_max)
    : row_of_token_(tokens_max), token_of_row_(tokens_max) {
  groups_.reserve(experts_max);
  pairs_.reserve(pairs_max);
}

void ExpertShare::begin(AttachedWorker& worker) {
  worker_ = &worker;
  groups_.clear();
}

void ExpertShare::number_rows(const ShareContext& context) {
  const auto rows = std::span(row_of_token_).first(context.routed->tokens);
  std::ranges::fill(rows, kNoRow);
  for (const ExpertGroup& group : groups_) {
    for (uint32_t i = group.begin; i < group.end; ++i) rows[context.groups->tokens()[i]] = 0;
  }
  row_count_ = 0;
  for (uint32_t token = 0; token < rows.size(); ++token) {
    if (rows[token] == kNoRow) continue;
    rows[token] = row_count_;
    token_of_row_[row_count_++] = token;
  }
}

void ExpertShare::write_activations(const ShareContext& context) const {
  const shm::Board& board = worker_->board;
  const quant::Activations& input = *context.routed->input;
  const uint32_t hidden = input.cols();
  for (uint32_t row = 0; row < rows_; ++row) {
    const uint32_t token = token_of_row_[first_row_ + row];
    if (context.activations == shm::ActivationKind::kQ8) {
      std::memcpy(board.activations(row), input.q8(token).q, quant::q8_row_bytes(hidden));
    } else {
      std::memcpy(board.activations(row), input.f32(token), hidden * sizeof(float));
    }
  }
}

// Groups are in ascending order of expert, so the pairs are, too, as the board wants them.
void ExpertShare::write_pairs(const ShareContext& context) {
  shm::BoardPair* out = worker_->board.pairs();
  pairs_.clear();
  for (const ExpertGroup& group : groups_) {
    for (uint32_t i = group.begin; i < group.end; ++i) {
      const uint32_t row = row_of_token_[context.groups->tokens()[i]];
      if (row < first_row_ || row >= first_row_ + rows_) continue;
      out[pairs_.size()] = {.token = static_cast<uint16_t>(row - first_row_), .expert = group.expert};
      pairs_.push_back(context.groups->pairs()[i]);
    }
  }
}

void ExpertShare::send_rows(const ShareContext& context) {
  const shm::BoardGeometry& geometry = worker_->board.geometry();
  CHECK(context.routed->input->cols() == geometry.hidden, "{} values, the board has {}",
        context.routed->input->cols(), geometry.hidden);
  CHECK(geometry.tokens_max * context.routed->top_k <= geometry.pairs_max,
        "{} tokens of {} experts, the board has {} pairs", geometry.tokens_max, context.routed->top_k,
        geometry.pairs_max);
  rows_ = std::min(row_count_ - first_row_, geometry.tokens_max);
  write_activations(context);
  write_pairs(context);
  ticket_ = worker_->next_ticket++;
  shm::BoardHeader& header = worker_->board.header();
  header.request = {.ticket = ticket_,
                    .layer = context.routed->layer,
                    .tokens = rows_,
                    .pair_count = static_cast<uint32_t>(pairs_.size()),
                    .activations = context.activations,
                    .numerics = static_cast<uint32_t>(context.numerics)};
  header.work.ring();  // publishes all of the above to the worker
}

void ExpertShare::send_first(const ShareContext& context) {
  number_rows(context);
  first_row_ = 0;
  send_rows(context);
}

bool ExpertShare::send_next(const ShareContext& context) {
  first_row_ += rows_;
  if (first_row_ >= row_count_) return false;
  send_rows(context);
  return true;
}

}  // namespace strata::gpu_worker
