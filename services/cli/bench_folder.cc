#include "services/cli/bench_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "services/cli/run_dir.h"

namespace strata::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "strata-bench-";
// Only a folder that says so is a bench's, whatever its name is.
constexpr std::string_view kMarker = "/made-by-strata-bench";

// Not valid: somebody holds it, or it is not ours.
sys::FileDescriptor lock_folder(const std::string& path) {
  sys::FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info{};
  if (!folder.valid() || ::fstat(folder.get(), &info) != 0 || info.st_uid != ::geteuid() ||
      ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) {
    return {};
  }
  return folder;
}

// Segments and sockets of the cluster, then the rest.
void remove_folder(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path + "/run", ignored)) {
    auto run_dir = RunDir::take(path + "/run");
    if (run_dir) {
      run_dir->clean();
    } else if (run_dir.error().code() == Code::kAlreadyExists) {
      return;  // a cluster still runs there
    }
  }
  fs::remove_all(path, ignored);
}

void remove_stale(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    if (!fs::exists(entry.path().string() + std::string(kMarker), error)) continue;
    if (const auto lock = lock_folder(entry.path().string()); lock.valid())
      remove_folder(entry.path().string());
  }
}

}  // namespace

Result<BenchFolder> BenchFolder::create(const std::string& parent) {
  remove_stale(parent);
  std::string path = fmt::format("{}/{}XXXXXX", parent, kPrefix);
  if (::mkdtemp(path.data()) == nullptr)
    return fail(Code::kPermissionDenied, "{}: cannot create a folder there: {}", parent,
                std::strerror(errno));
  sys::FileDescriptor lock = lock_folder(path);
  const std::string marker = path + std::string(kMarker);
  const sys::FileDescriptor made(::open(marker.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!lock.valid() || !made.valid())
    return fail(Code::kPermissionDenied, "{}: cannot be used: {}", path, std::strerror(errno));
  return BenchFolder(std::move(path), std::move(lock));
}

BenchFolder::~BenchFolder() {
  if (lock_.valid()) remove_folder(path_);
}

}  // namespace strata::cli
