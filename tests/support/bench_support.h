#pragma once
// What benchmarks of memory-bound code share: a buffer larger than any cache, plain reading of it as the
// yardstick, and threads that each sit on a physical core.

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "services/base/check.h"
#include "services/sys/cpus.h"

namespace strata::bench {

// Zeroed memory in transparent huge pages where the system gives them; touched by whoever writes first, so it
// lies on that thread's NUMA node.
class HugeBuffer {
 public:
  explicit HugeBuffer(std::size_t bytes) : bytes_(bytes) {
    // Aligned by hand: a mapping that begins inside a huge page gets none at either end.
    mapped_ = mmap(nullptr, bytes_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped_ != MAP_FAILED, "no {} bytes of memory", bytes_);
    const auto begin = reinterpret_cast<uintptr_t>(mapped_);
    data_ = reinterpret_cast<std::byte*>((begin + kHugePage - 1) / kHugePage * kHugePage);
    madvise(data_, bytes_, MADV_HUGEPAGE);  // a refusal costs speed only
  }
  ~HugeBuffer() { munmap(mapped_, bytes_ + kHugePage); }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  static constexpr std::size_t kHugePage = 2u << 20;
  std::size_t bytes_;
  void* mapped_ = nullptr;
  std::byte* data_ = nullptr;
};

// How much of this process's memory lies in huge pages, in bytes; 0 where the system does not say.
inline uint64_t huge_page_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "AnonHugePages: %llu kB", &kib) == 1) return uint64_t{kib} << 10;
  }
  return 0;
}

// Plain reading: every byte of the range is loaded once, in 256-bit words, by one thread. The result keeps
// the compiler from leaving out the loads. `begin` is aligned to 32 bytes, an unfinished word at the end is
// left out.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
inline uint64_t
read_all(const std::byte* begin, std::size_t bytes) {
  using Word = uint64_t __attribute__((vector_size(32), may_alias));
  const auto* words = reinterpret_cast<const Word*>(begin);
  const std::size_t count = bytes / sizeof(Word);
  Word any[8] = {};  // independent, so that loads do not wait for each other
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t k = 0; k < 8; ++k) any[k] |= words[i + k];
  }
  for (; i < count; ++i) any[0] |= words[i];
  uint64_t result = 0;
  for (const Word& word : any) result |= word[0] | word[1] | word[2] | word[3];
  return result;
}

// One pinned thread for each of the CPUs that sys::cpus_by_preference() names first.
class PinnedTeam {
 public:
  explicit PinnedTeam(uint32_t threads)
      : start_(threads + 1), end_(threads + 1), cpu_seconds_(threads), begin_(threads), finish_(threads) {
    const std::vector<uint32_t> cpus = sys::cpus_by_preference();
    CHECK(threads > 0 && threads <= cpus.size(), "{} threads on {} CPUs", threads, cpus.size());
    for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this, i, cpu = cpus[i]] { loop(i, cpu); });
  }
  ~PinnedTeam() {
    stopping_ = true;
    start_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  PinnedTeam(const PinnedTeam&) = delete;
  PinnedTeam& operator=(const PinnedTeam&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(threads_.size()); }

  // Calls work(i) for i = 0 .. active-1 on the first threads at once. Returns the seconds it took: CPU time
  // of the thread when there is one (what others on the machine do is left out), else from the first start to
  // the last end.
  double run(uint32_t active, const std::function<void(uint32_t)>& work) {
    active_ = active;
    work_ = &work;
    start_.arrive_and_wait();
    end_.arrive_and_wait();
    if (active == 1) return cpu_seconds_[0];
    const auto first = *std::min_element(begin_.begin(), begin_.begin() + active);
    const auto last = *std::max_element(finish_.begin(), finish_.begin() + active);
    return std::chrono::duration<double>(last - first).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double thread_cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  void loop(uint32_t index, uint32_t cpu) {
    const Status pinned = sys::pin_this_thread(cpu);
    CHECK(pinned.ok(), "{}", pinned.message());
    for (;;) {
      start_.arrive_and_wait();
      if (stopping_) return;
      if (index < active_) {
        begin_[index] = Clock::now();
        const double before = thread_cpu_seconds();
        (*work_)(index);
        cpu_seconds_[index] = thread_cpu_seconds() - before;
        finish_[index] = Clock::now();
      }
      end_.arrive_and_wait();
    }
  }

  std::barrier<> start_, end_;
  // Written before start_ and read after it, or after end_: the barriers order them.
  bool stopping_ = false;
  uint32_t active_ = 0;
  const std::function<void(uint32_t)>* work_ = nullptr;
  std::vector<double> cpu_seconds_;
  std::vector<Clock::time_point> begin_, finish_;
  std::vector<std::thread> threads_;
};

}  // namespace strata::bench
