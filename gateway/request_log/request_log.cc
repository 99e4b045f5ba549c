#include "gateway/request_log/request_log.h"

#include <utility>

#include "services/obs/log.h"

namespace strata::gateway {

namespace {

// What a record without content takes at most: its line and what stands around it.
constexpr std::size_t kRecordBytes = 1024;

std::size_t bytes_of(const RequestRecord& record) {
  std::size_t bytes = kRecordBytes;
  if (!record.content) return bytes;
  bytes += record.content->request.size();
  for (const std::string& answer : record.content->answers) bytes += answer.size();
  return bytes;
}

}  // namespace

Result<std::unique_ptr<RequestLog>> RequestLog::open(RequestLogOptions options,
                                                     prometheus::Counter& dropped) {
  LogFile file(options.path, options.bytes_max);
  TRY_OK(file.open());
  std::unique_ptr<RequestLog> log(new RequestLog(std::move(options), std::move(file), dropped));
  log->thread_ = std::thread([raw = log.get()] { raw->run(); });
  return log;
}

RequestLog::~RequestLog() {
  {
    std::scoped_lock lock(mutex_);
    stopping_ = true;
    flush_until_ = std::chrono::steady_clock::now() + options_.flush_time;
  }
  changed_.notify_one();
  thread_.join();
}

void RequestLog::add(RequestRecord record) {
  {
    std::scoped_lock lock(mutex_);
    const std::size_t bytes = bytes_of(record);
    if (queued_bytes_ + bytes <= options_.queue_bytes_max) {
      queued_bytes_ += bytes;
      queue_.push_back(std::move(record));
      changed_.notify_one();
      return;
    }
  }
  dropped_->Increment();
}

void RequestLog::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    const bool over = stopping_ && std::chrono::steady_clock::now() >= flush_until_;
    if (over) dropped_->Increment(static_cast<double>(queue_.size()));
    if (over || queue_.empty()) return;
    const RequestRecord record = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= bytes_of(record);
    lock.unlock();
    write(record);
    lock.lock();
  }
}

void RequestLog::write(const RequestRecord& record) {
  const Status written = file_.append(to_line(record));
  if (!written.ok()) {
    dropped_->Increment();
    if (!failing_) obs::warn("request_log", "requests are not logged: {}", written.message());
  }
  failing_ = !written.ok();
}

}  // namespace strata::gateway
