#pragma once
// What a keeper of states says to those who watch it, for services of gRPC's blocking server.

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace strata::gateway::testing {

// Response: v1::WatchStatesResponse or v1::WatchSnapshotsResponse.
template <class Response>
class WatchLog {
 public:
  // events_max: remembered; who begins to watch later than that, or is so far behind, is not told the rest.
  explicit WatchLog(std::size_t events_max = SIZE_MAX) : events_max_(events_max) {}

  void append(Response event) {
    std::scoped_lock lock(mutex_);
    events_.push_back(std::move(event));
    if (events_.size() <= events_max_) return;
    events_.pop_front();
    ++forgotten_;
  }

  // `begin`, everything that was ever said, "complete", and then what is said, until the watcher goes.
  grpc::Status serve(const grpc::ServerContext& context, const Response& begin,
                     grpc::ServerWriter<Response>& writer) {
    if (!writer.Write(begin)) return grpc::Status::OK;
    std::size_t told = 0;
    bool complete = false;
    while (!context.IsCancelled()) {
      for (const Response& event : since(told)) {
        if (!writer.Write(event)) return grpc::Status::OK;
        ++told;
      }
      if (!complete) {
        Response end;
        end.mutable_complete();
        writer.Write(end);
        complete = true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return grpc::Status::OK;
  }

 private:
  std::vector<Response> since(std::size_t index) {
    std::scoped_lock lock(mutex_);
    const std::size_t first = std::max(index, forgotten_) - forgotten_;
    return {events_.begin() + static_cast<std::ptrdiff_t>(first), events_.end()};
  }

  const std::size_t events_max_;
  std::mutex mutex_;
  std::deque<Response> events_;
  std::size_t forgotten_ = 0;
};

}  // namespace strata::gateway::testing
