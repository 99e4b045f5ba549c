#include "services/cli/detach.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "services/cli/run_dir.h"

namespace strata::cli {

namespace {

std::vector<std::string> arguments_of(const UpOptions& options, const std::string& run_dir) {
  std::vector<std::string> arguments = {"strata", "up", "--config", options.load.path, "--run-dir", run_dir};
  // --listen is among the sets already.
  for (const std::string& set : options.load.sets) {
    arguments.push_back("--set");
    arguments.push_back(set);
  }
  if (options.load.allow_unknown) arguments.push_back("--allow-unknown");
  return arguments;
}

Result<pid_t> start(const std::vector<std::string>& arguments, const std::string& log, int output) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  int error = posix_spawn(&pid, "/proc/self/exe", &files, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return fail(Code::kUnknown, "cannot start in the background: {}", std::strerror(error));
  return pid;
}

// What the log has got since it was `from` bytes long.
void print_log(const std::string& path, std::streamoff from) {
  std::ifstream in(path, std::ios::binary);
  in.seekg(from);
  for (std::string line; std::getline(in, line);) std::fprintf(stderr, "%s\n", line.c_str());
}

// The ready line, or "" when the other side closed its output without one.
std::string read_line(int fd) {
  std::string line;
  char c = 0;
  for (;;) {
    ssize_t got = ::read(fd, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return "";
    line += c;
    if (c == '\n') return line;
  }
}

}  // namespace

int detach(const UpOptions& options) {
  auto run_dir = RunDir::prepare(options.run_dir);
  if (!run_dir) return report(run_dir.error(), kExitFault);
  std::string log = *run_dir + "/strata.log";
  struct stat info{};
  std::streamoff log_begin = ::stat(log.c_str(), &info) == 0 ? info.st_size : 0;

  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return report(Status(Code::kUnknown, std::strerror(errno)), kExitFailed);
  sys::FileDescriptor input(ends[0]), output(ends[1]);
  auto pid = start(arguments_of(options, *run_dir), log, output.get());
  if (!pid) return report(pid.error(), kExitFailed);
  output = sys::FileDescriptor();

  std::string ready = read_line(input.get());
  if (!ready.empty()) {
    std::fputs(ready.c_str(), stdout);
    return 0;
  }
  int status = 0;
  while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) continue;
  print_log(log, log_begin);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailed;
}

}  // namespace strata::cli
