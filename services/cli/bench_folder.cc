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
    if (auto run_dir = RunDir::take(path + "/run")) run_dir->clean();
  }
  fs::remove_all(path, ignored);
}

void remove_stale(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
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
  // Between the two steps another bench may have taken it for a leftover.
  if (!lock.valid()) return fail(Code::kAborted, "{}: was taken by somebody else; try again", path);
  return BenchFolder(std::move(path), std::move(lock));
}

BenchFolder::~BenchFolder() {
  if (lock_.valid()) remove_folder(path_);
}

}  // namespace strata::cli
