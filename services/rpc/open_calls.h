#pragma once
// The client contexts of calls that are under way, so that whoever owns the stubs can end them all before it
// goes.

#include <grpcpp/client_context.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "services/rpc/server.h"

namespace strata::rpc {

class OpenCalls {
 public:
  OpenCalls() = default;
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // Cancels what is open and waits until nobody holds a context any more.
  ~OpenCalls() {
    std::vector<std::shared_ptr<grpc::ClientContext>> open;
    {
      std::scoped_lock lock(mutex_);
      for (const auto& [number, context] : open_) {
        if (auto alive = context.lock()) open.push_back(std::move(alive));
      }
    }
    for (const auto& context : open) context->TryCancel();
    open.clear();
    std::unique_lock lock(mutex_);
    none_open_.wait(lock, [this] { return open_.empty(); });
  }

  // The context counts as open as long as anybody holds it. Every call has a deadline.
  std::shared_ptr<grpc::ClientContext> open(std::chrono::milliseconds timeout) {
    std::scoped_lock lock(mutex_);
    const uint64_t number = ++last_;
    auto context = std::shared_ptr<grpc::ClientContext>(new grpc::ClientContext,
                                                        [this, number](grpc::ClientContext* over) {
                                                          // A context holds its channel. It has to be gone
                                                          // before it is counted out, or the last channel
                                                          // would end on a thread of gRPC's, which then waits
                                                          // for itself.
                                                          delete over;
                                                          std::scoped_lock over_lock(mutex_);
                                                          open_.erase(number);
                                                          if (open_.empty()) none_open_.notify_all();
                                                        });
    set_deadline(*context, timeout);
    open_.emplace(number, context);
    return context;
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_open_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::weak_ptr<grpc::ClientContext>> open_;  // by number
};

}  // namespace strata::rpc
