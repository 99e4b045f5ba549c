#pragma once
// Runs the threads of one block after the other on this OS thread. A thread keeps its fiber while it waits
// for others; threads that never wait share one, so a kernel without barriers costs little more than a loop.
//
// In every other block threads start from the last to the first: a missing barrier shows in one of the two
// orders.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "gpu-worker/cuda/emulation/fiber.h"
#include "gpu-worker/cuda/emulation/kernel_words.h"

namespace strata::gpu_worker::cuda::emulation {

class BlockRunner {
 public:
  BlockRunner() = default;
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Returns when all threads have; ends the process when some wait for others that cannot come.
  void run(uint32_t thread_count, bool from_last, void (*body)(void*), void* argument);

  // For kernels, from the thread that runs now.
  uint64_t meet(uint32_t mask, const char* what, uint64_t in, uint32_t argument, Meeting meeting);
  uint32_t meet_block(const char* what, uint32_t in);
  void wait_a_turn();
  uint32_t current() const { return current_; }

 private:
  struct Thread {
    const char* waits_in = nullptr;  // nullptr: runs, can run or has not begun
    uint32_t mask = 0;
    bool returned = false;
    Fiber* fiber = nullptr;
  };
  // Lanes of one mask that have come to the same place; in use while arrived != 0.
  struct Gathering {
    uint32_t mask = 0;
    uint32_t arrived = 0;
    const char* what = nullptr;
  };
  struct Warp {
    Lane lanes[32];
    std::vector<Gathering> gatherings;
  };

  static void run_threads(void* self);
  void begin_threads();
  void resume(uint32_t thread);
  void pause();
  void become(uint32_t thread);
  void release(uint32_t thread);
  Gathering& gathering_of(Warp& warp, uint32_t mask, const char* what);
  [[noreturn]] void deadlock();

  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  uint32_t count_ = 0;
  bool from_last_ = false;
  uint32_t begun_ = 0;
  uint32_t returned_ = 0;
  uint32_t current_ = 0;

  uint32_t at_barrier_ = 0;
  const char* barrier_ = nullptr;
  uint32_t barrier_sum_ = 0;
  uint32_t barrier_result_ = 0;

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::deque<uint32_t> ready_;
  std::deque<uint32_t> polling_;  // those who look again and again for a word of another processor
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Fiber* running_ = nullptr;
};

// "kernel NAME, block (1, 0, 0), thread 5" of what runs on this OS thread.
std::string describe_place();
// Prints the text and ends the process.
[[noreturn]] void die(const std::string& text);

}  // namespace strata::gpu_worker::cuda::emulation
