#include "services/snapshot/disk_writer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "services/base/check.h"
#include "services/sys/cpus.h"

namespace strata::snapshot {

int64_t BandwidthBudget::wait_us(uint64_t bytes, int64_t now_us) {
  if (bytes_per_second_ == 0) return 0;
  const int64_t begin_us = std::max(now_us, free_at_us_);
  free_at_us_ = begin_us + static_cast<int64_t>(1e6 * static_cast<double>(bytes) /
                                                static_cast<double>(bytes_per_second_));
  return begin_us - now_us;
}

DiskWriter::DiskWriter(DiskTier& tier, const DiskWriterOptions& options, Done done)
    : tier_(tier), options_(options), done_(std::move(done)), bandwidth_(options.bytes_per_second) {
  CHECK(done_ != nullptr && options_.queue_max > 0);
  thread_ = std::thread([this] { run(); });
}

DiskWriter::~DiskWriter() { stop(); }

bool DiskWriter::enqueue(SnapshotContent content, uint64_t mark) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || queue_.size() >= options_.queue_max) return false;
  queue_.push_back({.content = std::move(content), .mark = mark});
  changed_.notify_one();
  return true;
}

void DiskWriter::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void DiskWriter::wait_until_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

uint32_t DiskWriter::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(queue_.size());
}

void DiskWriter::run() {
  sys::name_this_thread("snapshot-writer");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Job job = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    const bool give_up = stopping_;
    lock.unlock();
    if (give_up) {
      done_(job.mark, fail(Code::kCancelled, "stopping"));
    } else {
      done_(job.mark, tier_.write(job.content, [this](uint64_t bytes) { return pace(bytes); }));
    }
    lock.lock();
    busy_ = false;
    if (queue_.empty()) idle_.notify_all();
  }
}

Status DiskWriter::pace(uint64_t bytes) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const int64_t wait_us =
      bandwidth_.wait_us(bytes, std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, std::chrono::microseconds(wait_us), [&] { return stopping_; })) {
    return fail(Code::kCancelled, "stopping");
  }
  return {};
}

}  // namespace strata::snapshot
