#include "services/cli/process_host.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

namespace strata::cli {

namespace asio = boost::asio;

struct AsioProcessHost::Watched {
  Watched(asio::io_context& context, sys::ProcessHandle its_handle,
          std::function<void(sys::ExitStatus)> callback)
      : handle(std::move(its_handle)), descriptor(context, handle.fd()), on_exit(std::move(callback)) {}
  ~Watched() { descriptor.release(); }  // the handle closes it
  sys::ProcessHandle handle;
  asio::posix::stream_descriptor descriptor;
  std::function<void(sys::ExitStatus)> on_exit;
};

Result<uint32_t> AsioProcessHost::start(const ChildSpec& spec, std::function<void(sys::ExitStatus)> on_exit) {
  TRY(sys::ProcessHandle handle,
      sys::spawn({.arguments = spec.arguments, .environment = {}, .output_path = {}}));
  uint32_t pid = handle.pid();
  auto child = std::make_shared<Watched>(context_, std::move(handle), std::move(on_exit));
  {
    std::scoped_lock lock(mutex_);
    running_[pid] = child;
  }
  asio::post(context_, [this, child] { wait(child); });
  return pid;
}

void AsioProcessHost::wait(const std::shared_ptr<Watched>& child) {
  child->descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                               [this, child](boost::system::error_code error) {
                                 if (error == asio::error::operation_aborted) return;
                                 auto exit = sys::reap(child->handle);
                                 if (!exit) return wait(child);
                                 {
                                   // From here on the pid may be somebody else's.
                                   std::scoped_lock lock(mutex_);
                                   running_.erase(child->handle.pid());
                                 }
                                 child->on_exit(*exit);
                               });
}

void AsioProcessHost::signal(uint32_t pid, int signal) {
  std::scoped_lock lock(mutex_);
  if (auto found = running_.find(pid); found != running_.end()) found->second->handle.send_signal(signal);
}

}  // namespace strata::cli
