#pragma once
// A gateway put together: model file, HTTP server, actors, links to the other processes. Used by main.cc and
// by the tests.

#include <memory>
#include <string>
#include <vector>

#include "gateway/generation/generation.h"
#include "gateway/http/http_server.h"
#include "services/config/settings.h"
#include "services/obs/metrics.h"

namespace strata::gateway {

struct GatewayOptions {
  const config::Settings* settings = nullptr;  // must outlive the gateway
  std::string run_dir = {};
  std::string config_hash = {};
  HttpOptions http = {};             // all but the write timeout comes from the settings
  GenerationLimits generation = {};  // the keep-alive interval comes from the settings
};

// For `strata status`: asked from any thread.
struct GatewayStatus {
  bool was_ready = false;  // requests could be served at least once
  bool draining = false;
  double progress = 0;  // of the model's loading
  std::vector<std::string> degraded;
  std::vector<std::pair<std::string, std::string>> facts;
};

class Gateway {
 public:
  // Errors are start-up faults: the model's file, its template, the address.
  static Result<std::unique_ptr<Gateway>> start(GatewayOptions options);
  ~Gateway();

  const std::string& address() const;  // "http://127.0.0.1:8080"
  const std::shared_ptr<obs::Metrics>& metrics() const;
  GatewayStatus status() const;

  // Takes no new requests, lets the running ones end or cuts them off after supervisor.drain_ms, and stops.
  void drain_and_stop();

 private:
  struct Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::gateway
