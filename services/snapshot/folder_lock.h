#pragma once
// One process per folder: a file LOCK, locked for as long as the process lives (the kernel unlocks it however
// the process ends), whose text says who that is.

#include <string>

#include "services/base/status.h"
#include "services/sys/process.h"

namespace strata::snapshot {

class FolderLock {
 public:
  // owner: for people, "strata-cache-manager of /run/strata". Errors: kAlreadyExists (says who has it),
  // kPermissionDenied (also a read-only file system), kNotFound (no such folder).
  static Result<FolderLock> take(const std::string& folder, const std::string& owner);

 private:
  explicit FolderLock(sys::FileDescriptor file) : file_(std::move(file)) {}
  sys::FileDescriptor file_;
};

inline constexpr const char* kLockFile = "LOCK";

}  // namespace strata::snapshot
