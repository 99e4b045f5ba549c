#pragma once
// The threads of an expert worker: they serve one board at a time. The thread that calls serve() leads: it
// waits at the board's doorbell, plans the request and opens it to all threads; each takes units of it until
// none is left; when all are done the leader reports the request done. No allocation, lock or system call on
// the way, unless somebody sleeps.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "cpu-expert-worker/expert_job.h"
#include "cpu-expert-worker/pool_counters.h"
#include "cpu-expert-worker/work_shares.h"
#include "services/shm/board.h"

namespace strata::cpu_expert_worker {

struct BoardServerOptions {
  std::span<const model::LayerExperts> layers;  // outlive the server
  uint32_t threads = 1;                         // the leader included
  std::vector<uint32_t> cpus = {};              // thread i is pinned to cpus[i]; empty: none is pinned
  shm::WaitPolicy wait = {};                    // spin only when pinned to cores of their own
  CutRules rules = {};
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

  const PoolCounters& counters() const { return counters_; }

 private:
  using Clock = std::chrono::steady_clock;

  void helper_loop(uint32_t lane);
  void pin(uint32_t lane) const;
  void work(uint32_t lane);
  void compute_all(const WorkShares::Round& round, Stage stage, uint32_t lane);
  // Until all of h is there; asks meanwhile for the weights that are read next.
  void wait_and_fetch(const WorkShares::Round& round, JobScratch& scratch) const;
  void wait_complete(const WorkShares::Round& round, Stage stage) const;
  void answer();
  void follow_window(const shm::BoardHeader& header);
  Status serve_request();

  BoardServerOptions options_;
  std::vector<JobScratch> scratch_;  // (threads)
  PoolCounters counters_;

  // The request being served; stays as it is from the moment it is opened until its last unit is finished.
  shm::Board* board_ = nullptr;
  std::optional<ExpertJob> job_;
  WorkShares shares_;

  shm::Doorbell start_;                   // leader -> helpers
  std::atomic<uint32_t> window_open_{0};  // the board's, for the helpers, who may outlive the board
  shm::WaitPolicy helper_wait_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> helpers_;
};

}  // namespace strata::cpu_expert_worker
