#pragma once
// What a keeper of states says to those who watch it, for services of gRPC's blocking server.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace strata::gateway::testing {

// Response: v1::WatchStatesResponse or v1::WatchSnapshotsResponse.
template <class Response>
class WatchLog {
 public:
  void append(Response event) {
    std::scoped_lock lock(mutex_);
    events_.push_back(std::move(event));
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
    return {events_.begin() + static_cast<std::ptrdiff_t>(index), events_.end()};
  }

  std::mutex mutex_;
  std::vector<Response> events_;
};

}  // namespace strata::gateway::testing
