#pragma once
// The attached expert workers and their boards. attach/detach come from gRPC threads; the window loop uses the workers. A worker is
// lost when its process is gone (pidfd) or its progress stands still for its budget; it is killed first, then its board is retired.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/shm/board.h"
#include "services/sys/process.h"

namespace strata::gpu_worker {

struct ExpertWorkersOptions {
  std::string run_id;           // for segment names
  shm::BoardGeometry geometry;
  uint32_t lost_after_ms = 1000;
  uint32_t expected = 1;        // how many the configuration starts; fewer attached is "degraded"
};

// One worker with its board; owned by ExpertWorkers, shared with the window that uses it.
struct AttachedWorker {
  std::string name;
  sys::ProcessHandle process;
  shm::Board board;
  uint64_t next_ticket = 1;
  std::function<void()> on_retired;  // ends the Attach stream
};

class ExpertWorkers {
 public:
  explicit ExpertWorkers(const ExpertWorkersOptions& options);
  ~ExpertWorkers();

  // gRPC side. Makes a board for the process; the worker joins at the next window boundary. A worker of the same name is replaced.
  Result<std::shared_ptr<AttachedWorker>> attach(const std::string& name, uint32_t pid, std::function<void()> on_retired);
  void detach(const std::shared_ptr<AttachedWorker>& worker);  // its stream ended
  std::vector<std::string> missing() const;                    // names of expected workers that are not attached

  // Window loop side.
  const std::vector<std::shared_ptr<AttachedWorker>>& at_window_boundary();  // applies attach and detach
  // Waits until the worker has done `ticket`. False: it was lost, has been killed and retired; its parts must be computed elsewhere.
  // expert_count scales the budget.
  bool wait_done(AttachedWorker& worker, uint64_t ticket, uint32_t expert_count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::gpu_worker
