#pragma once
// The process's own metrics over HTTP, for scrapers that want each process apart (setting metrics.listen).

#include <memory>
#include <string>

#include "services/base/status.h"
#include "services/obs/metrics.h"

namespace strata::rpc {

class MetricsHttp {
 public:
  // Serves http://ADDRESS/metrics. kUnavailable: the port is taken or the address is not ours.
  static Result<std::unique_ptr<MetricsHttp>> start(const std::string& address,
                                                    std::shared_ptr<obs::Metrics> metrics);
  ~MetricsHttp();

 private:
  struct Impl;
  explicit MetricsHttp(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::rpc
