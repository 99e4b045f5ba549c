#include "gpu-worker/cuda/emulation/block.h"

#include <fmt/format.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>

constinit thread_local uint3 threadIdx = {};

namespace strata::gpu_worker::cuda::emulation {
namespace {
// One text can stand at two addresses.
bool same_text(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }
}  // namespace

void BlockRunner::run(uint32_t thread_count, bool from_last, void (*body)(void*), void* argument) {
  body_ = body;
  argument_ = argument;
  count_ = thread_count;
  from_last_ = from_last;
  begun_ = returned_ = at_barrier_ = barrier_sum_ = 0;
  threads_.assign(count_, Thread{});
  if (warps_.size() < (count_ + 31) / 32) warps_.resize((count_ + 31) / 32);

  uint32_t fruitless = 0;  // turns of polling threads since anything else ran
  for (;;) {
    if (!ready_.empty()) {
      const uint32_t next = ready_.front();
      ready_.pop_front();
      fruitless = 0;
      resume(next);
    } else if (begun_ < count_) {
      fruitless = 0;
      begin_threads();
    } else if (!polling_.empty()) {
      if (fruitless++ >= polling_.size()) {
        fruitless = 0;
        sched_yield();
      }
      const uint32_t next = polling_.front();
      polling_.pop_front();
      resume(next);
    } else {
      break;
    }
  }
  if (returned_ != count_) deadlock();
}

void BlockRunner::begin_threads() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(run_threads, this));
    idle_.push_back(fibers_.back().get());
  }
  running_ = idle_.back();
  idle_.pop_back();
  running_->resume();
}

// A fiber's work: threads, until one of them has waited and others can go on, or none is left to begin.
void BlockRunner::run_threads(void* self) {
  auto& runner = *static_cast<BlockRunner*>(self);
  Fiber* const fiber = runner.running_;
  while (runner.begun_ < runner.count_ && runner.ready_.empty()) {
    const uint32_t order = runner.begun_++;
    const uint32_t thread = runner.from_last_ ? runner.count_ - 1 - order : order;
    runner.threads_[thread].fiber = fiber;
    runner.become(thread);
    runner.body_(runner.argument_);
    runner.threads_[runner.current_].returned = true;
    ++runner.returned_;
  }
  runner.idle_.push_back(fiber);
}

void BlockRunner::become(uint32_t thread) {
  current_ = thread;
  threadIdx.x = thread;
}

void BlockRunner::resume(uint32_t thread) {
  become(thread);
  running_ = threads_[thread].fiber;
  running_->resume();
}

void BlockRunner::pause() { threads_[current_].fiber->suspend(); }

void BlockRunner::release(uint32_t thread) {
  threads_[thread].waits_in = nullptr;
  if (thread != current_) ready_.push_back(thread);
}

BlockRunner::Gathering& BlockRunner::gathering_of(Warp& warp, uint32_t mask, const char* what) {
  Gathering* unused = nullptr;
  for (Gathering& gathering : warp.gatherings) {
    if (gathering.arrived == 0) {
      unused = &gathering;
    } else if (gathering.mask == mask) {
      if (!same_text(gathering.what, what)) {
        kernel_fault(
            fmt::format("{} where other lanes of mask {:08x} are in {}", what, mask, gathering.what).c_str());
      }
      return gathering;
    }
  }
  if (unused == nullptr) unused = &warp.gatherings.emplace_back();
  *unused = {mask, 0, what};
  return *unused;
}

uint64_t BlockRunner::meet(uint32_t mask, const char* what, uint64_t in, uint32_t argument, Meeting meeting) {
  const uint32_t thread = current_;
  Warp& warp = warps_[thread / 32];
  Lane& lane = warp.lanes[thread % 32];
  if ((mask >> thread % 32 & 1) == 0)
    kernel_fault(fmt::format("{} with mask {:08x}, which leaves the calling lane out", what, mask).c_str());
  lane.in = in;
  lane.argument = argument;
  Gathering& gathering = gathering_of(warp, mask, what);
  gathering.arrived |= 1u << thread % 32;
  if (gathering.arrived == mask) {
    gathering.arrived = 0;
    meeting(warp.lanes, mask);
    for (uint32_t i = 0; i < 32; ++i) {
      if ((mask >> i & 1) != 0) release(thread / 32 * 32 + i);
    }
  } else {
    threads_[thread].waits_in = what;
    threads_[thread].mask = mask;
    pause();
  }
  return lane.out;
}

uint32_t BlockRunner::meet_block(const char* what, uint32_t in) {
  if (at_barrier_ == 0) {
    barrier_ = what;
    barrier_sum_ = 0;
  }
  if (!same_text(barrier_, what))
    kernel_fault(fmt::format("{} where other threads are in {}", what, barrier_).c_str());
  barrier_sum_ += in;
  if (++at_barrier_ == count_) {
    at_barrier_ = 0;
    barrier_result_ = barrier_sum_;
    for (uint32_t i = 0; i < count_; ++i) release(from_last_ ? count_ - 1 - i : i);
  } else {
    threads_[current_].waits_in = what;
    threads_[current_].mask = 0;
    pause();
  }
  return barrier_result_;
}

void BlockRunner::wait_a_turn() {
  polling_.push_back(current_);
  pause();
}

// Names each group of threads that waits in one place by its first thread, and the first that has returned.
void BlockRunner::deadlock() {
  std::string text;
  uint32_t first_returned = count_;
  for (uint32_t i = 0; i < count_; ++i) {
    const Thread& thread = threads_[i];
    if (thread.returned) {
      if (first_returned == count_) first_returned = i;
      continue;
    }
    if (i > 0 && !threads_[i - 1].returned && same_text(threads_[i - 1].waits_in, thread.waits_in) &&
        threads_[i - 1].mask == thread.mask)
      continue;
    text += fmt::format("\n  thread {} waits in {}", i, thread.waits_in);
    if (thread.mask != 0) text += fmt::format(" of lanes {:08x}", thread.mask);
  }
  if (first_returned < count_)
    text +=
        fmt::format("\n  {} of {} threads have returned, thread {} first", returned_, count_, first_returned);
  become(0);
  die(fmt::format("{}: a barrier that not all threads reach:{}", describe_place(), text));
}

void die(const std::string& text) {
  std::fprintf(stderr, "CUDA emulation: %s\n", text.c_str());
  std::fflush(stderr);
  std::abort();
}

void take_from_lane(Lane (&lanes)[32], uint32_t mask) {
  for (uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const uint32_t source = lanes[i].argument;
    if ((mask >> source & 1) == 0)
      kernel_fault(fmt::format("a shuffle of lanes {:08x} reads lane {}", mask, source).c_str());
    lanes[i].out = lanes[source].in;
  }
}

void collect_bits(Lane (&lanes)[32], uint32_t mask) {
  uint64_t bits = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0 && lanes[i].in != 0) bits |= uint64_t{1} << i;
  }
  for (Lane& lane : lanes) lane.out = bits;
}

void collect_equal(Lane (&lanes)[32], uint32_t mask) {
  for (uint32_t i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    lanes[i].out = 0;
    for (uint32_t j = 0; j < 32; ++j) {
      if ((mask >> j & 1) != 0 && lanes[i].in == lanes[j].in) lanes[i].out |= uint64_t{1} << j;
    }
  }
}

}  // namespace strata::gpu_worker::cuda::emulation
