#pragma once
// Processes as the supervisor and the gpu-worker need them: spawn, watch through a pidfd, end for certain.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace strata::sys {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release();

 private:
  int fd_ = -1;
};

// A process watched through its pidfd: the pid cannot be reused under us.
class ProcessHandle {
 public:
  static Result<ProcessHandle> open(uint32_t pid);  // kNotFound: there is no such process
  uint32_t pid() const { return pid_; }
  int fd() const { return fd_.get(); }  // readable once the process is gone
  bool gone() const;                    // no system call wait: one poll with timeout 0
  void send_signal(int signal) const;
  // SIGKILL, then waits until it is gone; false if it is still there after timeout_ms.
  bool kill_and_wait(uint32_t timeout_ms) const;

 private:
  uint32_t pid_ = 0;
  FileDescriptor fd_;
};

struct SpawnOptions {
  std::vector<std::string> arguments;    // [0] is the program's path
  std::vector<std::string> environment;  // added to the parent's: "NAME=value"
  std::string output_path;               // stdout and stderr go here (append); empty: the parent's
};
// The child gets SIGKILL when its parent thread's process dies (PR_SET_PDEATHSIG), default signal handlers, and its own process group.
Result<ProcessHandle> spawn(const SpawnOptions& options);

// How a child that is gone ended: "exit 2", "signal 9 (Killed)". Reaps it. nullopt: still running.
struct ExitStatus {
  bool signaled = false;
  int value = 0;  // exit code or signal
  std::string text() const;
};
std::optional<ExitStatus> reap(const ProcessHandle& child);

// Ends this process with SIGKILL when its parent dies; for main() of every worker.
void die_with_parent();
uint64_t rss_bytes(uint32_t pid);  // 0 if it cannot be read

}  // namespace strata::sys
