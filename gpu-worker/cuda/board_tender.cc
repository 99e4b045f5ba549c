#include "gpu-worker/cuda/board_tender.h"

#include <chrono>

#include "services/sys/cpus.h"

namespace strata::gpu_worker::cuda {
namespace {

// Between two looks at workers that do their work.
constexpr std::chrono::milliseconds kPause(1);

}  // namespace

BoardTender::BoardTender(MappedBoards& boards, const shm::WaitPolicy& wait)
    : boards_(boards), wait_(wait), thread_([this] { run(); }) {}

BoardTender::~BoardTender() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    open_.store(false, std::memory_order_relaxed);
  }
  changed_.notify_all();
  thread_.join();
}

void BoardTender::begin() {
  {
    std::lock_guard lock(mutex_);
    pairs_ = 0;
    tending_ = true;
    open_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_all();
}

uint32_t BoardTender::end() {
  std::unique_lock lock(mutex_);
  open_.store(false, std::memory_order_relaxed);
  changed_.notify_all();
  changed_.wait(lock, [this] { return !tending_; });
  return pairs_;
}

void BoardTender::run() {
  sys::name_this_thread("boards");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || tending_; });
    if (stopping_) return;
    while (open_.load(std::memory_order_relaxed)) {
      lock.unlock();
      pairs_ += boards_.tend();
      if (boards_.answers_here()) shm::relax(wait_);
      lock.lock();
      if (!boards_.answers_here())
        changed_.wait_for(lock, kPause, [this] { return !open_.load(std::memory_order_relaxed); });
    }
    tending_ = false;
    changed_.notify_all();
  }
}

}  // namespace strata::gpu_worker::cuda
