#include "gateway/request_log/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "services/sys/errno_status.h"

namespace strata::gateway {

namespace {

Failure system_fault(const std::string& path) {
  const int error = errno;
  return fail(sys::errno_code(error), "{}: {}", path, std::strerror(error));
}

std::string numbered(const std::string& path, uint32_t number) {
  return number == 0 ? path : fmt::format("{}.{}", path, number);
}

bool ends_in_mid_line(int file, off_t bytes) {
  char last = '\n';
  return bytes > 0 && ::pread(file, &last, 1, bytes - 1) == 1 && last != '\n';
}

}  // namespace

Status LogFile::open() {
  // Not blocking, for a pipe would wait for its reader.
  sys::FileDescriptor file(
      ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat info{};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return system_fault(path_);
  if (!S_ISREG(info.st_mode)) return fail(Code::kInvalidArgument, "{}: is not a file", path_);
  if (info.st_uid != ::geteuid())
    return fail(Code::kPermissionDenied, "{}: belongs to user {}, not to us", path_, info.st_uid);
  if ((info.st_mode & 077) != 0) {
    return fail(Code::kPermissionDenied, "{}: others may read it (mode {:04o}); chmod 600 it", path_,
                info.st_mode & 07777);
  }
  file_ = std::move(file);
  bytes_ = static_cast<uint64_t>(info.st_size);
  // Where the power went away in the middle of a line, the next one shall not be spoilt, too.
  if (ends_in_mid_line(file_.get(), info.st_size)) return write_all("\n");
  return {};
}

Status LogFile::append(const std::string& line) {
  if (!is_in_place()) TRY_OK(open());
  if (bytes_ > 0 && bytes_ + line.size() > bytes_max_) TRY_OK(rotate());
  return write_all(line);
}

bool LogFile::is_in_place() const {
  struct stat ours{}, there{};
  return file_.valid() && ::fstat(file_.get(), &ours) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

// All or nothing: what a full disk has taken is cut off again.
Status LogFile::write_all(const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(file_.get(), bytes.data() + done, bytes.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      Status fault = system_fault(path_);
      // If it cannot be cut off either, open() finds it.
      static_cast<void>(::ftruncate(file_.get(), static_cast<off_t>(bytes_)));
      file_ = {};
      return fault;
    }
  }
  bytes_ += done;
  return {};
}

// From the oldest on, so that a rotation that failed half-way is gone on with and loses nothing.
Status LogFile::rotate() {
  for (uint32_t number = kLogFilesMax; number > 0; --number) {
    const std::string from = numbered(path_, number - 1);
    if (::rename(from.c_str(), numbered(path_, number).c_str()) != 0 && errno != ENOENT)
      return system_fault(from);
  }
  file_ = {};
  return open();
}

}  // namespace strata::gateway
