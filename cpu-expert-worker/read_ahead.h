#pragma once
// Brings the mapped expert weights into memory and into this process's page tables, in the background, so
// that the first windows do not wait for the disk page by page. Nothing is copied: it is the page cache's
// memory, shared with the other processes.

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "services/model/model_weights.h"

namespace strata::cpu_expert_worker {

class ReadAhead {
 public:
  // One worker of `of` reads the experts whose home it is (the gpu-worker deals them out by number, in turn):
  // a page of the file lies on the NUMA node of whoever reads it first.
  struct Part {
    uint32_t index = 0;
    uint32_t of = 1;
  };
  // Reads at most `bytes_max`: more than memory holds would push out what came first.
  ReadAhead(std::span<const model::LayerExperts> layers, uint64_t bytes_max, Part part);
  ReadAhead(std::span<const model::LayerExperts> layers, uint64_t bytes_max)
      : ReadAhead(layers, bytes_max, Part{}) {}
  ~ReadAhead();  // ends after the piece at hand

  uint64_t total_bytes() const { return total_bytes_; }  // of the part
  uint64_t read_bytes() const { return read_bytes_.load(std::memory_order_relaxed); }
  bool finished() const { return finished_.load(std::memory_order_relaxed); }

 private:
  void run(uint64_t bytes_max);

  std::vector<std::span<const std::byte>> pieces_;
  uint64_t total_bytes_ = 0;
  std::atomic<uint64_t> read_bytes_{0};
  std::atomic<bool> finished_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace strata::cpu_expert_worker
