#pragma once
// Looks after the boards while a window runs, on a thread of its own. The window loop cannot: whatever it
// asks CUDA for may wait for the kernels before (a full launch queue, a kernel that is loaded at its first
// use), and those may wait for a board.

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "gpu-worker/cuda/mapped_boards.h"

namespace strata::gpu_worker::cuda {

class BoardTender {
 public:
  // `boards` outlives this; between begin() and end() nobody else uses it. The thread stays on `cpus`, if
  // there are any: it wakes a thousand times a second, and is not to interrupt those whom it looks after.
  BoardTender(MappedBoards& boards, const shm::WaitPolicy& wait, std::span<const uint32_t> cpus);
  ~BoardTender();
  BoardTender(const BoardTender&) = delete;
  BoardTender& operator=(const BoardTender&) = delete;

  // Neither waits for the thread, nor wakes it while it looks up by itself: windows follow each other faster
  // than threads wake.
  void begin();
  // When it returns, the boards are the caller's again. The number of pairs that were computed here since
  // begin().
  uint32_t end();

 private:
  void run(const std::vector<uint32_t>& cpus);

  MappedBoards& boards_;
  const shm::WaitPolicy wait_;
  // Held while the thread looks at the boards.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool open_ = false;    // a window runs
  bool parked_ = false;  // the thread sleeps until it is woken
  uint32_t pairs_ = 0;   // of the window
  std::thread thread_;
};

}  // namespace strata::gpu_worker::cuda
