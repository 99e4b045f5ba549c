#pragma once
// The client contexts of calls that are under way, so that whoever owns the stubs can end them all before it
// goes.

#include <grpcpp/client_context.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

#include "services/rpc/server.h"

namespace strata::gateway {

class OpenCalls {
 public:
  OpenCalls() = default;
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // Cancels what is open and waits until nobody holds a context any more.
  ~OpenCalls() {
    std::unique_lock lock(mutex_);
    for (grpc::ClientContext* context : open_) context->TryCancel();
    none_open_.wait(lock, [this] { return open_.empty(); });
  }

  // The context counts as open as long as anybody holds it. Every call has a deadline.
  std::shared_ptr<grpc::ClientContext> open(std::chrono::milliseconds timeout) {
    auto context =
        std::shared_ptr<grpc::ClientContext>(new grpc::ClientContext, [this](grpc::ClientContext* over) {
          {
            std::scoped_lock lock(mutex_);
            open_.erase(over);
            if (open_.empty()) none_open_.notify_all();
          }
          delete over;
        });
    rpc::set_deadline(*context, timeout);
    std::scoped_lock lock(mutex_);
    open_.insert(context.get());
    return context;
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_open_;
  std::set<grpc::ClientContext*> open_;
};

}  // namespace strata::gateway
