#include "cache-manager/expert_copier.h"

#include <utility>

#include "services/base/check.h"
#include "services/model/record_checksum.h"
#include "services/sys/cpus.h"
#include "services/sys/crash_point.h"

namespace strata::cache_manager {

CopyThread::CopyThread(const model::ExpertTable& experts, bool checksums)
    : experts_(experts), checksums_(checksums), thread_([this] { run(); }) {}

CopyThread::~CopyThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ready_.notify_one();
  thread_.join();
}

void CopyThread::copy(CopyOrder order) {
  {
    std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  ready_.notify_one();
}

CopyResult CopyThread::write(const CopyOrder& order) {
  const Grant& grant = *order.grant;
  const auto [layer, expert] = order.exchange.incoming;
  const model::LayerExperts& experts = experts_.layers.at(layer);
  CHECK(experts.record_bytes() <= grant.slot_bytes && order.exchange.slot < grant.slot_count,
        "a record of {} bytes for slot {} of {}, {} bytes each", experts.record_bytes(), order.exchange.slot,
        grant.slot_count, grant.slot_bytes);
  const uint64_t slot = uint64_t{order.exchange.slot} * grant.slot_bytes;
  Status status;
  for (const model::RecordPart& part : experts.record_parts(expert)) {
    if (status.ok()) status = grant.arena->write(slot + part.offset, part.bytes);
    sys::crash_point("copying");
  }
  if (status.ok()) status = grant.arena->finish();
  CHECK(status.ok(), "{}", status.message());
  CopyResult result{.bytes = experts.record_bytes(), .checksum = {}};
  if (checksums_) result.checksum = model::source_checksum(experts, expert);
  return result;
}

void CopyThread::run() {
  sys::name_this_thread("copy");
  std::unique_lock lock(mutex_);
  for (;;) {
    ready_.wait(lock, [this] { return stop_ || !orders_.empty(); });
    if (orders_.empty()) return;
    const CopyOrder order = std::move(orders_.front());
    orders_.pop_front();
    // Relaxed: it only saves work; whoever called it off waits for done() all the same.
    const bool skip =
        stop_ || (order.called_off != nullptr && order.called_off->load(std::memory_order_relaxed));
    lock.unlock();
    order.done(skip ? CopyResult() : write(order));
    lock.lock();
  }
}

}  // namespace strata::cache_manager
