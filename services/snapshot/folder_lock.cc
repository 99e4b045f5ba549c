#include "services/snapshot/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "services/sys/errno_status.h"

namespace strata::snapshot {

Result<FolderLock> FolderLock::take(const std::string& folder, const std::string& owner) {
  const std::string path = folder + "/" + kLockFile;
  sys::FileDescriptor file(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return fail(sys::errno_code(errno), "{}: {}", path, std::strerror(errno));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error != EWOULDBLOCK) return fail(sys::errno_code(error), "{}: lock: {}", path, std::strerror(error));
    std::array<char, 256> text{};
    const ssize_t length = std::max<ssize_t>(::pread(file.get(), text.data(), text.size(), 0), 0);
    return fail(Code::kAlreadyExists, "{}: in use by {}", folder,
                std::string_view(text.data(), static_cast<std::size_t>(length)));
  }
  const std::string text = fmt::format("process {}: {}", ::getpid(), owner.substr(0, 200));
  // The text is a courtesy; the lock holds without it (a full disk, say).
  if (::ftruncate(file.get(), 0) == 0)
    static_cast<void>(::pwrite(file.get(), text.data(), text.size(), 0) < 0);
  return FolderLock(std::move(file));
}

}  // namespace strata::snapshot
