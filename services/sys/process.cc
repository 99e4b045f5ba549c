#include "services/sys/process.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>

#include "services/sys/errno_status.h"

namespace strata::sys {
// The pidfd calls go through syscall(): the header of glibc 2.36 declares its wrappers without C linkage.
namespace {

// True once the pidfd is readable: every thread of the process has ended.
bool wait_until_gone(int pidfd, uint32_t timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{.fd = pidfd, .events = POLLIN, .revents = 0};
    const int ready = poll(&entry, 1, left > 0 ? static_cast<int>(left) : 0);
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (valid()) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (valid()) close(fd_);
}

int FileDescriptor::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

Result<ProcessHandle> ProcessHandle::open(uint32_t pid) {
  // pidfd_open takes 0 and negative numbers as errors of the caller; here they are just not a process.
  if (pid == 0 || pid > static_cast<uint32_t>(INT32_MAX)) return fail(Code::kNotFound, "no process {}", pid);
  ProcessHandle handle;
  handle.pid_ = pid;
  handle.fd_ = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U)));
  if (!handle.fd_.valid()) {
    const int error = errno;
    return fail(errno_code(error), "process {}: {}", pid, std::strerror(error));
  }
  return handle;
}

bool ProcessHandle::gone() const { return !fd_.valid() || wait_until_gone(fd_.get(), 0); }

void ProcessHandle::send_signal(int signal) const {
  // The only failure that can happen is ESRCH: it is gone already.
  if (fd_.valid()) syscall(SYS_pidfd_send_signal, fd_.get(), signal, nullptr, 0U);
}

bool ProcessHandle::kill_and_wait(uint32_t timeout_ms) const {
  if (!fd_.valid()) return true;
  send_signal(SIGKILL);
  return wait_until_gone(fd_.get(), timeout_ms);
}

std::string ExitStatus::text() const {
  if (!signaled) return fmt::format("exit {}", value);
  const char* name = sigdescr_np(value);
  return fmt::format("signal {} ({})", value, name != nullptr ? name : "unknown");
}

std::optional<ExitStatus> reap(const ProcessHandle& child) {
  siginfo_t info{};
  int result = 0;
  do {
    result = waitid(P_PIDFD, static_cast<id_t>(child.fd()), &info, WEXITED | WNOHANG);
  } while (result != 0 && errno == EINTR);
  if (result != 0 || info.si_pid == 0) return std::nullopt;
  return ExitStatus{.signaled = info.si_code != CLD_EXITED, .value = info.si_status};
}

void die_with_parent() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died between the two lines: then no signal will come. (Before the first line, spawn()
  // watches.)
  if (getppid() != parent) raise(SIGKILL);
}

uint64_t rss_bytes(uint32_t pid) {
  std::ifstream statm(fmt::format("/proc/{}/statm", pid));
  uint64_t total_pages = 0, resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return 0;
  return resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace strata::sys
