#pragma once
// The private folder of one `strata bench`: its synthetic model, its cluster's run directory and log. It goes
// with the object; what a killed bench left is removed by the next one.

#include <string>

#include "services/base/status.h"
#include "services/sys/process.h"

namespace strata::cli {

class BenchFolder {
 public:
  // A new folder in `parent`, mode 0700, locked as long as the object lives.
  static Result<BenchFolder> create(const std::string& parent);
  BenchFolder(BenchFolder&&) = default;
  ~BenchFolder();

  std::string model_path() const { return path_ + "/synthetic.gguf"; }
  std::string config_path() const { return path_ + "/bench.yaml"; }
  std::string run_dir() const { return path_ + "/run"; }
  std::string log_path() const { return path_ + "/log"; }
  const std::string& path() const { return path_; }

 private:
  BenchFolder(std::string path, sys::FileDescriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  sys::FileDescriptor lock_;  // of the folder itself; moved from: not valid, and nothing is removed
};

}  // namespace strata::cli
