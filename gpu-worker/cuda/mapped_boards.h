#pragma once
// The dispatch boards in the device's address space: those of the attached workers, or one that this process
// answers by itself when there are none. Window loop only.

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu-worker/board_substitute.h"
#include "gpu-worker/cuda/dispatch.h"
#include "gpu-worker/expert_workers.h"

namespace strata::gpu_worker::cuda {

// A board as kernels address it. It is registered with CUDA for as long as the object lives.
class MappedBoard {
 public:
  static Result<MappedBoard> create(const shm::Board& board);
  MappedBoard(MappedBoard&& other) noexcept;
  MappedBoard& operator=(MappedBoard&& other) noexcept;
  ~MappedBoard();
  const BoardAddresses& addresses() const { return addresses_; }

 private:
  MappedBoard() = default;
  void* registered_ = nullptr;
  BoardAddresses addresses_;
};

struct MappedBoardsOptions {
  std::string run_id;
  shm::BoardGeometry geometry;
  ExpertWorkers* workers = nullptr;       // outlives this
  BoardSubstitute* substitute = nullptr;  // outlives this
};

class MappedBoards {
 public:
  static Result<MappedBoards> create(const MappedBoardsOptions& options);

  // A window boundary: takes note of workers that came and went. True: table() and tickets() changed.
  Result<bool> update();
  const BoardTable& table() const { return table_; }
  // As they stand while no window runs.
  BoardTickets tickets() const;

  // While a window runs, again and again: looks after workers that do not answer, and answers for those that
  // were lost and for the board without a worker. The number of pairs computed here.
  uint32_t tend();
  // Some board has no worker any more: its requests want to be looked for without pause.
  bool answers_here() const;

 private:
  struct Entry {
    std::shared_ptr<AttachedWorker> worker;  // null: the board of this process
    const shm::Board* board = nullptr;
    MappedBoard mapped;
    bool lost = false;  // answered here for the rest of the window
    uint64_t watched_ticket = 0;
    ProgressWatch watch = {};
  };
  explicit MappedBoards(const MappedBoardsOptions& options) : options_(options) {}
  Status add(std::shared_ptr<AttachedWorker> worker);

  MappedBoardsOptions options_;
  std::unique_ptr<shm::Board> own_;
  std::vector<Entry> entries_;
  BoardTable table_;
  std::chrono::steady_clock::time_point looked_at_;
};

}  // namespace strata::gpu_worker::cuda
