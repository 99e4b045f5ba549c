#pragma once
// Answers a dispatch board in the place of its worker: for a device that writes its requests and awaits the
// answers by itself, so that a board whose worker was lost, or that never had one, does not stop it. Same
// bits as a worker's.

#include <cstdint>
#include <vector>

#include "services/model/model_weights.h"
#include "services/model/parallel.h"
#include "services/shm/board.h"

namespace strata::gpu_worker {

class BoardSubstitute {
 public:
  // Both are kept by reference.
  BoardSubstitute(const model::ModelWeights& weights, model::Parallel& parallel);

  // Has the device rung for something that nobody has answered yet?
  static bool is_asked(const shm::Board& board);
  // Computes the request and answers it; the number of its pairs. Only when is_asked(), and when no worker
  // writes to the board any more.
  uint32_t answer(const shm::Board& board);

 private:
  const model::ModelWeights& weights_;
  model::Parallel& parallel_;
  std::vector<expert::ExpertScratch> scratch_;  // one per lane
  std::vector<uint32_t> tokens_;                // per pair: its activation row
  std::vector<float*> parts_;                   // per pair
  std::vector<uint32_t> begins_;                // where the pairs of each expert begin, and the end
};

}  // namespace strata::gpu_worker
