#pragma once
// The run directory of a cluster: sockets, the effective configuration, and the lock that makes one
// supervisor its only owner.

#include <string>

#include "services/base/status.h"
#include "services/sys/process.h"

namespace strata::cli {

// $XDG_RUNTIME_DIR/strata, else /tmp/strata-UID.
std::string default_run_dir();

class RunDir {
 public:
  // Creates the folder (mode 0700) where it is missing and checks whose it is; does not lock. Returns the
  // absolute path. kPermissionDenied: it belongs to somebody else, or others may enter it; kInvalidArgument:
  // no socket's path would fit.
  static Result<std::string> prepare(const std::string& path);
  // prepare(), then takes the lock and removes what a killed cluster left. kAlreadyExists: a supervisor runs
  // there; the message has its pid.
  static Result<RunDir> take(const std::string& path);

  const std::string& path() const { return path_; }
  std::string config_path() const { return config_path(path_); }
  static std::string config_path(const std::string& run_dir) { return run_dir + "/config.yaml"; }
  // The effective configuration for the children, mode 0600.
  Status write_config(const std::string& yaml) const;
  // Removes sockets, shared-memory segments and the effective configuration. The lock goes with the object.
  void clean() const;

 private:
  RunDir(std::string path, sys::FileDescriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  sys::FileDescriptor lock_;
};

}  // namespace strata::cli
