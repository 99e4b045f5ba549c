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

void CopyThread::write(const model::LayerExperts& layer, const Job& job) {
  const Grant& grant = *job.grant;
  CHECK(layer.record_bytes() <= grant.slot_bytes && job.exchange.slot < grant.slot_count,
        "a record of {} bytes for slot {} of {}, {} bytes each", layer.record_bytes(), job.exchange.slot,
        grant.slot_count, grant.slot_bytes);
  const uint64_t slot = uint64_t{job.exchange.slot} * grant.slot_bytes;
  Status status;
  for (const model::RecordPart& part : layer.record_parts(job.exchange.incoming.expert)) {
    if (status.ok()) status = grant.arena->write(slot + part.offset, part.bytes);
  }
  if (status.ok()) status = grant.arena->finish();
  CHECK(status.ok(), "{}", status.message());
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
    if (!skip) write(layer, job);
    job.done(layer.record_bytes());
    job = {};
    lock.lock();
  }
}

}  // namespace strata::cache_manager
