#pragma once
// Copies experts from the mapped model file into arena slots, on a thread of its own: reading may wait for
// the disk, and neither the exchanges nor anybody's window should.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "cache-manager/engine_link.h"
#include "services/model/model_weights.h"

namespace strata::cache_manager {

struct CopyResult {
  uint64_t bytes = 0;                // 0: it was called off before it began
  std::optional<uint64_t> checksum;  // of the expert in the file, if records are checked
};

struct CopyOrder {
  std::shared_ptr<Grant> grant;
  SlotExchange exchange;
  // Set by whoever ordered it, on any thread: it need not begin any more. May be null.
  std::shared_ptr<const std::atomic<bool>> called_off;
  std::function<void(CopyResult)> done;  // on any thread
};

class ExpertCopier {
 public:
  virtual ~ExpertCopier() = default;
  // Calls done when the slot holds the expert, or when nothing will be written any more. Always called,
  // unless the arena cannot be written: what a GPU refuses once it refuses for ever, so that ends the
  // process, and the supervisor starts another.
  virtual void copy(CopyOrder order) = 0;
};

class CopyThread final : public ExpertCopier {
 public:
  // `experts` outlives the copier. checksums: computes those of the results.
  CopyThread(const model::ExpertTable& experts, bool checksums);
  ~CopyThread() override;  // finishes the copy it is at; what is still queued is called off
  void copy(CopyOrder order) override;

 private:
  void run();
  CopyResult write(const CopyOrder& order);

  const model::ExpertTable& experts_;
  const bool checksums_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<CopyOrder> orders_;  // at most experts.exchanges_in_flight
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace strata::cache_manager
