#pragma once
// The threads of an expert worker: they serve one board at a time. The thread that calls serve() leads: it
// waits at the board's doorbell, takes the request and opens it to all threads; each takes experts until none
// is left; whoever finishes the last one reports the request done. No allocation, lock or system call on the
// way, unless somebody sleeps.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "cpu-expert-worker/expert_job.h"
#include "cpu-expert-worker/pool_probe.h"
#include "services/shm/board.h"

namespace strata::cpu_expert_worker {

struct BoardServerOptions {
  std::span<const model::LayerExperts> layers;  // outlive the server
  uint32_t threads = 1;                         // the leader included
  std::vector<uint32_t> cpus;                   // thread i is pinned to cpus[i]; empty: none is pinned
  shm::WaitPolicy wait;                         // spin only when pinned to cores of their own
  PoolProbe* probe = nullptr;                   // may be null
};

class BoardServer {
 public:
  explicit BoardServer(const BoardServerOptions& options);
  ~BoardServer();
  BoardServer(const BoardServer&) = delete;
  BoardServer& operator=(const BoardServer&) = delete;

  // Serves until stop() turns true (asked while waiting); a request that was begun is finished. When it
  // returns, no thread touches the board any more. kFailedPrecondition: the board is of another model;
  // kDataLoss: it holds a request that cannot be.
  Status serve(shm::Board& board, const std::function<bool()>& stop);

 private:
  void helper_loop(uint32_t lane);
  void pin(uint32_t lane) const;
  void work(uint32_t lane);
  void open(uint32_t run_count);
  void finish_request();
  Status serve_request();

  BoardServerOptions options_;
  std::vector<expert::ExpertScratch> scratch_;  // (threads)

  // The request being served; constant from the moment it is opened until its last run is finished.
  shm::Board* board_ = nullptr;
  std::optional<ExpertJob> job_;
  uint32_t generation_ = 0;  // leader only

  // (generation, runs not yet taken): a run can be taken only while its request is the open one.
  alignas(kCacheLine) std::atomic<uint64_t> open_{0};
  alignas(kCacheLine) std::atomic<uint32_t> unfinished_{0};
  std::atomic<uint64_t> opened_{0}, closed_{0};  // requests; equal when no thread touches the board
  shm::Doorbell start_;                          // leader -> helpers
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> helpers_;
};

}  // namespace strata::cpu_expert_worker
