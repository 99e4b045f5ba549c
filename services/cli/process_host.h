#pragma once
// Starts processes and says when they end. The supervisor decides through this interface, so that its
// decisions can be tested without processes and without waiting.

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "services/cli/child_spec.h"
#include "services/sys/process.h"

namespace boost::asio {
class io_context;
}

namespace strata::cli {

class ProcessHost {
 public:
  virtual ~ProcessHost() = default;
  // Returns the pid. on_exit is called once, from any thread, when the process is gone. The process dies with
  // the calling thread.
  virtual Result<uint32_t> start(const ChildSpec& spec, std::function<void(sys::ExitStatus)> on_exit) = 0;
  // Nothing happens when the process is gone already.
  virtual void signal(uint32_t pid, int signal) = 0;
};

// Real processes, each watched through its pidfd by the io_context that somebody runs.
class AsioProcessHost final : public ProcessHost {
 public:
  explicit AsioProcessHost(boost::asio::io_context& context) : context_(context) {}
  Result<uint32_t> start(const ChildSpec& spec, std::function<void(sys::ExitStatus)> on_exit) override;
  void signal(uint32_t pid, int signal) override;

 private:
  struct Watched;
  void wait(const std::shared_ptr<Watched>& child);

  boost::asio::io_context& context_;
  std::mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Watched>> running_;  // by pid, until reaped
};

}  // namespace strata::cli
