#pragma once
// The steps by which files of the disk tier change. All changes go through here, so that a test can let the
// world end after any of them (disk_crash_test.cc).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "services/base/status.h"
#include "services/sys/process.h"

namespace strata::snapshot {

// Errors of all steps: kResourceExhausted (disk full, quota), kPermissionDenied (also a read-only file
// system), kNotFound, others by errno; the message names the file.
class DiskFiles {
 public:
  virtual ~DiskFiles() = default;
  // A new file, mode 0600; kAlreadyExists.
  virtual Result<sys::FileDescriptor> create(const std::string& path);
  virtual Status write_at(int fd, std::span<const std::byte> bytes, uint64_t offset, const std::string& path);
  virtual Status sync(int fd, const std::string& path);
  virtual Status rename(const std::string& from, const std::string& to);
  virtual Status remove(const std::string& path);  // no error if it is not there
  virtual Status sync_folder(const std::string& path);
};

// Called before every slice of at most kWriteSliceBytes is written; sleeps to keep a bandwidth, or ends the
// writing with an error.
using Pace = std::function<Status(uint64_t bytes)>;
inline constexpr std::size_t kWriteSliceBytes = std::size_t{1} << 20;

inline constexpr std::string_view kTemporarySuffix = ".tmp";

// Writes PATH.tmp by `fill`, makes it durable, gives it its name. The name itself is durable after the next
// sync_folder(). After an error there is no PATH.tmp, unless the removal failed, too. Returns what fill
// returns: the size.
Result<uint64_t> write_new_file(DiskFiles& files, const std::string& path,
                                const std::function<Result<uint64_t>(int fd, const std::string& path)>& fill);

// Exactly bytes.size() bytes. kDataLoss: the file ends before; kNotFound, ...
Status read_exactly(int fd, std::span<std::byte> bytes, uint64_t offset, const std::string& path);
// For reading; a link is refused.
Result<sys::FileDescriptor> open_to_read(const std::string& path);

}  // namespace strata::snapshot
