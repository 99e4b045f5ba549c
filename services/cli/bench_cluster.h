#pragma once
// A cluster of its own for a measurement: `strata up` as a child, with its log in a file. It ends with the
// object, and with this process.

#include <atomic>
#include <string>

#include "services/base/status.h"
#include "services/cli/http_client.h"
#include "services/config/load.h"
#include "services/sys/process.h"

namespace strata::cli {

struct BenchClusterOptions {
  config::LoadOptions load;
  std::string run_dir;
  std::string log_path;
  const std::atomic<bool>* cancelled = nullptr;
};

class BenchCluster {
 public:
  // Returns when the cluster is ready. An error carries the end of its log; kCancelled: the flag was set.
  static Result<BenchCluster> start(const BenchClusterOptions& options);
  BenchCluster(BenchCluster&&) = default;
  ~BenchCluster();

  const Url& url() const { return url_; }
  // kUnavailable with the end of the log: it has ended by itself.
  Status check() const;

 private:
  BenchCluster(sys::ProcessHandle process, std::string log_path)
      : process_(std::move(process)), log_path_(std::move(log_path)) {}
  sys::ProcessHandle process_;
  std::string log_path_;
  Url url_;
};

}  // namespace strata::cli
