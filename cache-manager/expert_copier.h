#pragma once
// Copies experts from the mapped model file into arena slots, on a thread of its own: reading may wait for
// the disk, and neither the exchanges nor anybody's window should.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "cache-manager/engine_link.h"
#include "services/model/model_weights.h"

namespace strata::cache_manager {

class ExpertCopier {
 public:
  virtual ~ExpertCopier() = default;
  // Calls done(bytes) when the slot holds the expert; on any thread. Always called, unless the arena cannot
  // be written: what a GPU refuses once it refuses for ever, so that ends the process, and the supervisor
  // starts another.
  virtual void copy(std::shared_ptr<Grant> grant, SlotExchange exchange,
                    std::function<void(uint64_t bytes)> done) = 0;
};

class CopyThread final : public ExpertCopier {
 public:
  explicit CopyThread(const model::ExpertTable& experts);  // outlives the copier
  ~CopyThread() override;  // finishes the copy it is at; what is still queued is done without copying
  void copy(std::shared_ptr<Grant> grant, SlotExchange exchange,
            std::function<void(uint64_t bytes)> done) override;

 private:
  struct Job {
    std::shared_ptr<Grant> grant;
    SlotExchange exchange;
    std::function<void(uint64_t)> done;
  };
  void run();
  void write(const model::LayerExperts& layer, const Job& job);

  const model::ExpertTable& experts_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_;  // at most experts.exchanges_in_flight
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace strata::cache_manager
