#include "services/cli/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "services/base/limits.h"
#include "services/rpc/server.h"
#include "services/shm/segment.h"

namespace strata::cli {

namespace fs = std::filesystem;

namespace {

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail(Code::kUnknown, "{}", std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

std::string pid_in(int lock) {
  char text[32] = {};
  ssize_t length = ::pread(lock, text, sizeof text - 1, 0);
  std::string pid(text, length > 0 ? static_cast<std::size_t>(length) : 0);
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  return pid.empty() ? "unknown" : pid;
}

}  // namespace

std::string default_run_dir() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return std::string(runtime) + "/strata";
  return fmt::format("/tmp/strata-{}", ::geteuid());
}

Result<std::string> RunDir::prepare(const std::string& path) {
  std::error_code error;
  fs::path absolute = fs::absolute(path, error).lexically_normal();
  if (error || path.empty()) return fail(Code::kInvalidArgument, "--run-dir '{}': not a path", path);
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  std::string folder = absolute.string();
  std::string longest = rpc::socket_path(folder, fmt::format("cpu-expert-worker-{}", kExpertWorkersMax - 1));
  if (longest.size() > rpc::kSocketPathMax) {
    return fail(Code::kInvalidArgument, "run directory {}: its path is too long for sockets by {} characters",
                folder, longest.size() - rpc::kSocketPathMax);
  }
  fs::create_directories(absolute.parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(Code::kPermissionDenied, "run directory {}: {}", folder, std::strerror(errno));
  }
  // Not stat(): somebody else's link in /tmp must not lead us elsewhere.
  struct stat info{};
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return fail(Code::kPermissionDenied, "run directory {}: not a folder", folder);
  }
  if (info.st_uid != ::geteuid()) {
    return fail(Code::kPermissionDenied, "run directory {}: belongs to user {}, not to us", folder,
                info.st_uid);
  }
  if ((info.st_mode & 077) != 0) {
    return fail(Code::kPermissionDenied, "run directory {}: others may enter it (mode {:04o}); chmod 700 it",
                folder, info.st_mode & 07777);
  }
  return folder;
}

Result<RunDir> RunDir::take(const std::string& path) {
  TRY(std::string folder, prepare(path));
  std::string lock_path = folder + "/lock";
  sys::FileDescriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return fail(Code::kPermissionDenied, "{}: {}", lock_path, std::strerror(errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(Code::kAlreadyExists,
                "run directory {}: the supervisor with pid {} runs there (strata status, strata down)",
                folder, pid_in(lock.get()));
  }
  static_cast<void>(!::ftruncate(lock.get(), 0));
  TRY_OK(write_all(lock.get(), fmt::format("{}\n", ::getpid())));
  RunDir taken(std::move(folder), std::move(lock));
  taken.clean();
  return taken;
}

Status RunDir::write_config(const std::string& yaml) const {
  std::string path = config_path();
  sys::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return fail(Code::kPermissionDenied, "{}: {}", path, std::strerror(errno));
  Status written = write_all(file.get(), yaml);
  if (!written.ok()) return fail(written.code(), "{}: {}", path, written.message());
  return {};
}

void RunDir::clean() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    std::error_code ignored;
    if (entry.symlink_status(ignored).type() == fs::file_type::socket) fs::remove(entry.path(), ignored);
  }
  fs::remove(config_path(), error);
  shm::remove_stale_segments(shm::run_id(path_));
}

}  // namespace strata::cli
