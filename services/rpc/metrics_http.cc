#include "services/rpc/metrics_http.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <charconv>
#include <exception>

#include "services/rpc/server.h"

namespace strata::rpc {

namespace {

class Collector final : public prometheus::Collectable {
 public:
  explicit Collector(std::shared_ptr<obs::Metrics> metrics) : metrics_(std::move(metrics)) {}
  std::vector<prometheus::MetricFamily> Collect() const override { return metrics_->collect(); }

 private:
  std::shared_ptr<obs::Metrics> metrics_;
};

constexpr std::string_view kExpertWorkerPrefix = "cpu-expert-worker-";

}  // namespace

struct MetricsHttp::Impl {
  Impl(const std::string& address, std::shared_ptr<obs::Metrics> metrics)
      : collector(std::make_shared<Collector>(std::move(metrics))), exposer(address, 1) {
    exposer.RegisterCollectable(collector);
  }
  std::shared_ptr<Collector> collector;  // the exposer holds it weakly
  prometheus::Exposer exposer;
};

MetricsHttp::MetricsHttp(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsHttp::~MetricsHttp() = default;

Result<std::unique_ptr<MetricsHttp>> MetricsHttp::start(const std::string& address,
                                                        std::shared_ptr<obs::Metrics> metrics) {
  try {
    return std::unique_ptr<MetricsHttp>(new MetricsHttp(std::make_unique<Impl>(address, std::move(metrics))));
  } catch (const std::exception& error) {
    return fail(Code::kUnavailable, "metrics.listen: cannot listen on {}: {}", address, error.what());
  }
}

std::string metrics_address(const std::string& metrics_listen, const std::string& process) {
  auto colon = metrics_listen.rfind(':');
  if (colon == std::string::npos || process == "gateway") return "";
  std::string_view digits = std::string_view(metrics_listen).substr(colon + 1);
  uint32_t port = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), port);
  uint32_t index = process == "gpu-worker" ? 0 : 1;
  if (process.starts_with(kExpertWorkerPrefix)) {
    uint32_t worker = 0;
    std::from_chars(process.data() + kExpertWorkerPrefix.size(), process.data() + process.size(), worker);
    index = 2 + worker;
  }
  // Port 0 stays 0: any free one.
  return fmt::format("{}:{}", metrics_listen.substr(0, colon), port == 0 ? 0 : port + index);
}

}  // namespace strata::rpc
