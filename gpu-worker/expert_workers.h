#pragma once
// The attached expert workers and their boards. attach/detach come from gRPC threads; the window loop uses
// the workers. A worker is lost when its process is gone (pidfd) or its progress stands still for its budget;
// it is killed first, then its board is retired.
//
// A board is never used for a second worker, and nobody reads a retired one. So whatever a retired worker
// still writes, it cannot reach a later window.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/shm/board.h"
#include "services/sys/process.h"

namespace strata::gpu_worker {

struct ExpertWorkersOptions {
  std::string run_id;  // for segment names
  shm::BoardGeometry geometry;
  uint32_t lost_after_ms = 1000;
  uint32_t expected = 1;  // how many the configuration starts; fewer attached is "degraded"
  // How the window loop waits for parts. Yielding is right wherever the workers' threads may need this core.
  shm::WaitPolicy wait = {.yield = true, .park_after_us = 200};
  // Workers do not sleep while a window is open: where cores are not short, and for a device that rings by
  // itself and can wake nobody.
  bool keep_awake = false;
};

// Ends the Attach stream; called once, from a gRPC thread or from the window loop, so it must not block.
using OnRetired = std::function<void()>;

// One worker with its board; owned by ExpertWorkers, shared with the window that uses it.
struct AttachedWorker {
  std::string name;  // the workers of a window are in the order of their names
  sys::ProcessHandle process;
  shm::Board board;
  OnRetired on_retired;
  uint64_t next_ticket = 1;  // window loop only
  // Set once. Whoever sees it (relaxed: nothing is read on its strength) gives the worker no more work and
  // expects none back.
  std::atomic<bool> retired{false};
  std::string retired_because;  // under the lock of ExpertWorkers; detach() tells
};

// When the progress of a worker that is waited for last moved.
struct ProgressWatch {
  std::optional<uint64_t> progress = {};  // none: not looked at yet
  std::chrono::steady_clock::time_point moved_at = std::chrono::steady_clock::now();
};

class ExpertWorkers {
 public:
  explicit ExpertWorkers(const ExpertWorkersOptions& options);
  ~ExpertWorkers();

  // gRPC side. Makes a board for the process; the worker joins at the next window boundary. A worker of the
  // same name is replaced. kNotFound: there is no process `pid`. kResourceExhausted: too many workers, or no
  // room in /dev/shm.
  Result<std::shared_ptr<AttachedWorker>> attach(const std::string& name, uint32_t pid, OnRetired on_retired);
  // Its stream ended. Returns why the worker was retired: by this, or by something before.
  std::string detach(const std::shared_ptr<AttachedWorker>& worker);
  std::vector<std::string> missing() const;  // names of expected workers that are not attached

  // Window loop side. Applies attach and detach, and notices processes that ended since. A window begins:
  // workers that sleep are woken, so that its first request finds them awake.
  const std::vector<std::shared_ptr<AttachedWorker>>& at_window_boundary();
  void window_over();  // no request is expected until the next one begins; again: nothing happens
  const std::vector<std::shared_ptr<AttachedWorker>>& in_window()
      const;  // as of the last boundary; some may be retired since
  // Waits until the worker has done `ticket`: then its parts are visible. False: it was lost, has been killed
  // and retired, or had left; its parts must be computed elsewhere. pair_count scales the budget.
  bool wait_done(AttachedWorker& worker, uint64_t ticket, uint32_t pair_count);
  // One look at a worker with a request of so many pairs, for who waits in another way: true when it was
  // lost, by now or because its progress stands still for longer than its budget. A watch belongs to one
  // request.
  bool is_lost(AttachedWorker& worker, uint32_t pair_count, ProgressWatch& watch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::gpu_worker
