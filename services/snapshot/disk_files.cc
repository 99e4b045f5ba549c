#include "services/snapshot/disk_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "services/sys/errno_status.h"

namespace strata::snapshot {
namespace {

Failure disk_failure(const std::string& path, const char* step, int error) {
  const Code code = error == EDQUOT ? Code::kResourceExhausted : sys::errno_code(error);
  return fail(code, "{}: {}: {}", path, step, std::strerror(error));
}

}  // namespace

Result<sys::FileDescriptor> DiskFiles::create(const std::string& path) {
  sys::FileDescriptor fd(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return disk_failure(path, "create", errno);
  return fd;
}

Status DiskFiles::write_at(int fd, std::span<const std::byte> bytes, uint64_t offset,
                           const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return disk_failure(path, "write", written < 0 ? errno : ENOSPC);
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status DiskFiles::sync(int fd, const std::string& path) {
  if (::fsync(fd) != 0) return disk_failure(path, "sync", errno);
  return {};
}

Status DiskFiles::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return disk_failure(from, "rename", errno);
  return {};
}

Status DiskFiles::remove(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return disk_failure(path, "remove", errno);
  return {};
}

Status DiskFiles::sync_folder(const std::string& path) {
  const sys::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return disk_failure(path, "open", errno);
  if (::fsync(fd.get()) != 0) return disk_failure(path, "sync", errno);
  return {};
}

Result<uint64_t> write_new_file(DiskFiles& files, const std::string& path,
                                const std::function<Result<uint64_t>(int, const std::string&)>& fill) {
  const std::string temporary = path + std::string(kTemporarySuffix);
  TRY_OK(files.remove(temporary));  // of a write whose removal failed
  const auto write = [&]() -> Result<uint64_t> {
    TRY(const sys::FileDescriptor fd, files.create(temporary));
    TRY(const uint64_t bytes, fill(fd.get(), temporary));
    TRY_OK(files.sync(fd.get(), temporary));
    TRY_OK(files.rename(temporary, path));
    return bytes;
  };
  auto written = write();
  if (!written) static_cast<void>(files.remove(temporary));
  return written;
}

Status read_exactly(int fd, std::span<std::byte> bytes, uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return disk_failure(path, "read", errno);
    if (got == 0) return fail(Code::kDataLoss, "{}: ends at byte {}", path, offset);
    offset += static_cast<uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Result<sys::FileDescriptor> open_to_read(const std::string& path) {
  sys::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return disk_failure(path, "open", errno);
  return fd;
}

}  // namespace strata::snapshot
