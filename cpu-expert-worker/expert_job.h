#pragma once
// A request taken from the board: checked, and planned as runs of pairs that share an expert.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "services/model/model_weights.h"
#include "services/shm/board.h"

namespace strata::cpu_expert_worker {

class ExpertJob {
 public:
  // All memory for requests of this geometry is taken here.
  ExpertJob(std::span<const model::LayerExperts> layers, const shm::BoardGeometry& geometry);

  // Reads the request of the board. Every number in it is checked against the board and the model before it
  // is used: kDataLoss says what is wrong.
  Status read(const shm::Board& board);

  uint64_t ticket() const { return ticket_; }
  uint32_t run_count() const { return static_cast<uint32_t>(runs_.size()); }
  uint64_t weight_bytes() const { return weight_bytes_; }  // that the runs read
  std::chrono::steady_clock::time_point taken_at() const { return taken_at_; }
  // Computes one run into the board's parts. Any thread; each run once.
  void compute(uint32_t run, expert::ExpertScratch& scratch) const;

 private:
  struct Run {
    uint16_t expert = 0;
    uint32_t begin = 0;  // of tokens_ and outputs_
    uint32_t end = 0;
  };

  Status check(const shm::BoardRequest& request) const;
  Status plan(const shm::Board& board, const shm::BoardRequest& request);
  void bind_input(const shm::Board& board, const shm::BoardRequest& request);

  std::span<const model::LayerExperts> layers_;
  shm::BoardGeometry geometry_;
  const model::LayerExperts* layer_ = nullptr;
  quant::Numerics numerics_ = quant::Numerics::kReproducible;
  uint64_t ticket_ = 0;
  uint64_t weight_bytes_ = 0;
  std::chrono::steady_clock::time_point taken_at_;
  std::vector<Run> runs_;
  std::vector<uint32_t> tokens_;
  std::vector<float*> outputs_;
  // Two objects, so that the memory for quantizing float32 rows stays where it is.
  std::optional<quant::Activations> q8_input_, f32_input_;
  const quant::Activations* input_ = nullptr;
};

}  // namespace strata::cpu_expert_worker
