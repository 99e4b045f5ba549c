#include "services/gguf/mapped_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace strata::gguf {
namespace {

struct Descriptor {
  explicit Descriptor(int value) : fd(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd;
};

Code code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EACCES:
    case EPERM:
      return Code::kPermissionDenied;
    case ENAMETOOLONG:
    case ELOOP:
      return Code::kInvalidArgument;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return Code::kResourceExhausted;
    default:
      return Code::kUnknown;
  }
}

Failure system_failure(const std::string& path, const char* what) {
  const int error = errno;
  return fail(code_of(error), "{}: cannot {}: {}", path, what, std::generic_category().message(error));
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // Non-blocking: a pipe without a writer would hang here; for a regular file it means nothing.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) return system_failure(path, "open");
  struct stat status = {};
  if (::fstat(file.fd, &status) != 0) return system_failure(path, "read the size of");
  if (!S_ISREG(status.st_mode)) {
    return fail(Code::kInvalidArgument, "{}: is {}, expected a file", path,
                S_ISDIR(status.st_mode) ? "a directory" : "a pipe or device");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return MappedFile({});  // mmap() refuses empty ranges
  void* begin = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (begin == MAP_FAILED) return system_failure(path, "map");
  // A file in memory: an expert is 2 MB in 500 small pages. Of a file on a disk every fault would read
  // megabytes.
  struct statfs system = {};
  if (::fstatfs(file.fd, &system) == 0 && system.f_type == TMPFS_MAGIC)
    static_cast<void>(::madvise(begin, size, MADV_HUGEPAGE));
  return MappedFile({static_cast<const std::byte*>(begin), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace strata::gguf
