#pragma once
// The request log: one line of JSON for each request of a generating endpoint, in a LogFile. A thread of its
// own writes it; whoever adds a record never waits. When the thread is behind by queue_bytes_max, or the disk
// refuses lines, they are dropped and counted, and the requests go on.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gateway/request_log/log_file.h"
#include "gateway/request_log/request_record.h"
#include "services/base/status.h"

namespace strata::gateway {

struct RequestLogOptions {
  std::string path = {};
  uint64_t bytes_max = uint64_t{64} << 20;  // a file is rotated before a line would make it larger
  bool content = false;
  std::size_t queue_bytes_max = std::size_t{64} << 20;
  // At the end, for what is still in the queue: a slow disk must not hold up a stop.
  std::chrono::milliseconds flush_time{1000};
};

class RequestLog {
 public:
  // dropped: counts records that are not in the file. Must outlive the log. Errors: LogFile::open()'s.
  static Result<std::unique_ptr<RequestLog>> open(RequestLogOptions options, prometheus::Counter& dropped);
  // Writes what was added before, within flush_time.
  ~RequestLog();

  bool wants_content() const { return options_.content; }
  // Any thread.
  void add(RequestRecord record);

 private:
  RequestLog(RequestLogOptions options, LogFile file, prometheus::Counter& dropped)
      : options_(std::move(options)), dropped_(&dropped), file_(std::move(file)) {}

  void run();
  void write(const RequestRecord& record);

  RequestLogOptions options_;
  prometheus::Counter* dropped_;

  // The thread's own.
  LogFile file_;
  bool failing_ = false;  // said once, until a line is written again

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RequestRecord> queue_;                    // guarded by mutex_
  std::size_t queued_bytes_ = 0;                       // guarded by mutex_
  bool stopping_ = false;                              // guarded by mutex_
  std::chrono::steady_clock::time_point flush_until_;  // guarded by mutex_, once stopping
  std::thread thread_;
};

}  // namespace strata::gateway
