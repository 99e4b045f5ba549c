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

// A process watched through its pidfd: the pid cannot be reused under us. An empty handle counts as gone.
class ProcessHandle {
 public:
  static Result<ProcessHandle> open(uint32_t pid);  // kNotFound: there is no such process
  uint32_t pid() const { return pid_; }
  int fd() const { return fd_.get(); }  // readable once the process is gone
  bool gone() const;                    // never blocks: one poll with timeout 0
  void send_signal(int signal) const;
  // SIGKILL, then waits until it is gone; false if it is still there after timeout_ms. A process that is gone
  // has no thread left that could write into shared memory.
  bool kill_and_wait(uint32_t timeout_ms) const;

 private:
  uint32_t pid_ = 0;
  FileDescriptor fd_;
};

struct SpawnOptions {
  std::vector<std::string> arguments;    // [0] is the program's path (no search in PATH)
  std::vector<std::string> environment;  // "NAME=value", over the parent's of the same name
  std::string output_path;               // stdout and stderr go here (append); empty: the parent's
};
// Starts a program with default signal handlers, nothing blocked, standard input from /dev/null, no other
// descriptor of the parent, and a process group of its own. The kernel kills the child (SIGKILL) when the
// *thread* that called spawn() ends, so call it from one that lives as long as the process. Errors:
// kNotFound, kPermissionDenied (program or output file), kResourceExhausted.
Result<ProcessHandle> spawn(const SpawnOptions& options);

// How a child that is gone ended: "exit 2", "signal 9 (Killed)". Reaps it. nullopt: still running (or not our
// child).
struct ExitStatus {
  bool signaled = false;
  int value = 0;  // exit code or signal
  std::string text() const;
};
std::optional<ExitStatus> reap(const ProcessHandle& child);

// Ends this process with SIGKILL when its parent dies; for main() of every worker. Harmless to repeat after
// spawn().
void die_with_parent();
uint64_t rss_bytes(uint32_t pid);  // 0 if it cannot be read

}  // namespace strata::sys
