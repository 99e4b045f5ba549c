#include "services/residency/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "services/residency/open_file.h"

namespace strata::residency {
namespace {

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// The name must be as durable as the content; a file system that cannot sync a folder has nothing to lose
// here.
void sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  const OpenFile file(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.fd() >= 0) static_cast<void>(::fsync(file.fd()));
}

}  // namespace

Status replace_file(const std::string& path, std::string_view bytes) {
  std::string temporary = path + ".XXXXXX";
  OpenFile file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.fd() < 0) {
    const int error = errno;
    const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound
                      : error == EACCES                   ? Code::kPermissionDenied
                                                          : Code::kUnknown;
    return fail(code, "{}: cannot create a file beside it: {}", path, system_text(error));
  }
  if (!write_all(file.fd(), bytes) || ::fsync(file.fd()) != 0 || !file.close() ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return fail(error == ENOSPC || error == EDQUOT ? Code::kResourceExhausted : Code::kUnknown,
                "{}: cannot write: {}", path, system_text(error));
  }
  sync_folder_of(path);
  return {};
}

}  // namespace strata::residency
