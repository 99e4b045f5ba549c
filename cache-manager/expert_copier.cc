#include "cache-manager/expert_copier.h"

#include <utility>

#include "services/base/check.h"
#include "services/sys/cpus.h"

namespace strata::cache_manager {

CopyThread::CopyThread(const model::ExpertTable& experts) : experts_(experts), thread_([this] { run(); }) {}

CopyThread::~CopyThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ready_.notify_one();
  thread_.join();
}

void CopyThread::copy(std::shared_ptr<Grant> grant, SlotExchange exchange,
                      std::function<void(uint64_t)> done) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(grant), exchange, std::move(done)});
  }
  ready_.notify_one();
}

void CopyThread::run() {
  sys::name_this_thread("copy");
  std::unique_lock lock(mutex_);
  for (;;) {
    ready_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    bool skip = stop_;
    lock.unlock();
    const model::LayerExperts& layer = experts_.layers.at(job.exchange.incoming.layer);
    std::span<std::byte> slot = job.grant->slot(job.exchange.slot);
    CHECK(layer.record_bytes() <= slot.size(), "a record of {} bytes for a slot of {}", layer.record_bytes(),
          slot.size());
    if (!skip) layer.write_record(job.exchange.incoming.expert, slot.data());
    job.done(layer.record_bytes());
    job = {};
    lock.lock();
  }
}

}  // namespace strata::cache_manager
