#include "gpu-worker/cuda/board_tender.h"

#include <chrono>

#include "services/obs/log.h"
#include "services/sys/cpus.h"

namespace strata::gpu_worker::cuda {
namespace {

// Between two looks at workers that do their work.
constexpr std::chrono::milliseconds kPause(1);
// So many of them without a window, and the thread sleeps until there is one.
constexpr uint32_t kIdlePauses = 100;

}  // namespace

BoardTender::BoardTender(MappedBoards& boards, const shm::WaitPolicy& wait, std::span<const uint32_t> cpus)
    : boards_(boards),
      wait_(wait),
      thread_([this, own = std::vector<uint32_t>(cpus.begin(), cpus.end())] { run(own); }) {}

BoardTender::~BoardTender() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BoardTender::begin() {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    pairs_ = 0;
    open_ = true;
    wake = parked_ || boards_.answers_here();
  }
  if (wake) changed_.notify_all();
}

uint32_t BoardTender::end() {
  std::lock_guard lock(mutex_);
  open_ = false;
  return pairs_;
}

void BoardTender::run(const std::vector<uint32_t>& cpus) {
  sys::name_this_thread("boards");
  if (!cpus.empty()) {
    const Status kept = sys::keep_this_thread_on(cpus);
    if (!kept.ok()) obs::warn("boards", "{}; the thread runs where it likes", kept.message());
  }
  std::unique_lock lock(mutex_);
  uint32_t idle = 0;
  while (!stopping_) {
    if (open_) {
      idle = 0;
      pairs_ += boards_.tend();
      if (boards_.answers_here()) {
        lock.unlock();
        shm::relax(wait_);
        lock.lock();
        continue;
      }
    } else if (++idle > kIdlePauses) {
      parked_ = true;
      changed_.wait(lock, [this] { return stopping_ || open_; });
      parked_ = false;
      continue;
    }
    changed_.wait_for(lock, kPause);
  }
}

}  // namespace strata::gpu_worker::cuda
