#include "gpu-worker/cuda/emulation/pending_copies.h"

#include <algorithm>

namespace strata::gpu_worker::cuda::emulation {

void PendingCopies::begin_block() {
  for (Thread& thread : threads_) {
    thread.copies.clear();
    thread.commits = 0;
  }
}

PendingCopies::Thread& PendingCopies::of(uint32_t thread) {
  if (threads_.size() <= thread) threads_.resize(thread + 1);
  return threads_[thread];
}

void PendingCopies::add(uint32_t thread, uint4* to, const uint4* from) {
  of(thread).copies.push_back({to, from, of(thread).commits});
}

void PendingCopies::commit(uint32_t thread) { ++of(thread).commits; }

void PendingCopies::wait(uint32_t thread, uint32_t pending) {
  Thread& waiting = of(thread);
  const auto is_due = [&](const Copy& copy) { return copy.group + pending < waiting.commits; };
  const auto end = std::find_if_not(waiting.copies.begin(), waiting.copies.end(), is_due);
  for (auto copy = waiting.copies.begin(); copy != end; ++copy) *copy->to = *copy->from;
  waiting.copies.erase(waiting.copies.begin(), end);
}

}  // namespace strata::gpu_worker::cuda::emulation
