#pragma once
// A file of whole lines that only its user may read (rule I8), and its older ones: at bytes_max FILE becomes
// FILE.1, FILE.1 becomes FILE.2 and so on; kLogFilesMax older ones are kept.
//
// Whatever goes wrong is one line's misfortune: the next one opens the file again if it has to. A file that
// somebody moves away or removes (logrotate, say) is replaced by a new one with the next line.

#include <cstdint>
#include <string>

#include "services/base/status.h"
#include "services/sys/process.h"

namespace strata::gateway {

inline constexpr uint32_t kLogFilesMax = 4;

class LogFile {
 public:
  LogFile(std::string path, uint64_t bytes_max) : path_(std::move(path)), bytes_max_(bytes_max) {}

  // Makes the file, or takes up one that is there. kPermissionDenied: others may read it, or it is not ours;
  // kInvalidArgument: no regular file; else what the system says. Follows no link.
  Status open();
  // line: with its line break. Not ok: nothing of it is in the file, or only a beginning that the next
  // open() ends with a line break, where it could not be cut off again.
  Status append(const std::string& line);

 private:
  bool is_in_place() const;
  Status write_all(const std::string& bytes);
  Status rotate();

  std::string path_;
  uint64_t bytes_max_;
  sys::FileDescriptor file_;  // not valid: the next line opens it
  uint64_t bytes_ = 0;        // of the file
};

}  // namespace strata::gateway
