// spawn(): fork and exec. Between the two, the child of a process with many threads may only do what is
// async-signal-safe (another thread may have held the allocator's lock when it was copied), so everything is
// prepared before the fork.

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "services/base/check.h"
#include "services/sys/errno_status.h"
#include "services/sys/process.h"

namespace strata::sys {
namespace {

std::vector<char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The parent's environment with the additions; an addition replaces a variable of the same name.
std::vector<std::string> merged_environment(const std::vector<std::string>& additions) {
  std::vector<std::string> merged = additions;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    bool replaced = false;
    for (const std::string& addition : additions) replaced = replaced || addition.starts_with(name);
    if (!replaced) merged.emplace_back(variable);
  }
  return merged;
}

struct ChildPlan {
  pid_t parent;
  const char* program;
  char** arguments;
  char** environment;
  int input;   // /dev/null
  int output;  // -1: the parent's
  int report;  // close-on-exec: carries errno if exec fails
};

// Runs in the child: async-signal-safe calls only.
[[noreturn]] void become_program(const ChildPlan& plan) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before that: then no signal will come.
  if (getppid() != plan.parent) _exit(1);
  setpgid(0, 0);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(plan.input, STDIN_FILENO);
  if (plan.output >= 0) {
    dup2(plan.output, STDOUT_FILENO);
    dup2(plan.output, STDERR_FILENO);
  }
  // Whatever a library opened without O_CLOEXEC stays here. Kernels before 5.11 refuse, then it is inherited:
  // a leak, no fault.
  syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  execve(plan.program, plan.arguments, plan.environment);
  const int error = errno;
  static_cast<void>(!write(plan.report, &error, sizeof(error)));
  _exit(127);
}

// errno of the child's exec, or 0 once it has become the program (which closes the pipe).
int read_exec_error(int fd) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(fd, &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof(error)) ? error : 0;
}

}  // namespace

Result<ProcessHandle> spawn(const SpawnOptions& options) {
  CHECK(!options.arguments.empty());
  const std::string& program = options.arguments[0];
  const std::vector<std::string> environment = merged_environment(options.environment);
  std::vector<char*> argument_pointers = c_strings(options.arguments);
  std::vector<char*> environment_pointers = c_strings(environment);

  FileDescriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  FileDescriptor output;
  if (!options.output_path.empty()) {
    output =
        FileDescriptor(open(options.output_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!output.valid()) {
      const int error = errno;
      return fail(errno_code(error), "{}: {}", options.output_path, std::strerror(error));
    }
  }
  int ends[2] = {-1, -1};
  if (!input.valid() || pipe2(ends, O_CLOEXEC) != 0) {
    const int error = errno;
    return fail(errno_code(error), "{}: cannot start it: {}", program, std::strerror(error));
  }
  FileDescriptor report_in(ends[0]), report_out(ends[1]);

  const ChildPlan plan{.parent = getpid(),
                       .program = program.c_str(),
                       .arguments = argument_pointers.data(),
                       .environment = environment_pointers.data(),
                       .input = input.get(),
                       .output = output.get(),
                       .report = report_out.get()};
  // No handler of ours may run in the child before it has reset them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) become_program(plan);
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0)
    return fail(errno_code(fork_error), "{}: cannot start it: {}", program, std::strerror(fork_error));

  report_out = FileDescriptor();
  const int exec_error = read_exec_error(report_in.get());
  if (exec_error != 0) {
    waitpid(pid, nullptr, 0);
    return fail(errno_code(exec_error), "{}: {}", program, std::strerror(exec_error));
  }
  // Not reaped yet, so the pid is still this child's.
  return ProcessHandle::open(static_cast<uint32_t>(pid));
}

}  // namespace strata::sys
