#pragma once
// The gRPC edge of a process: a server on RUN_DIR/<name>.sock with health, reflection and the Process
// service; channels to others.

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/service_type.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/obs/metrics.h"
#include "strata/v1/process.pb.h"

namespace strata::rpc {

grpc::Status to_grpc(const Status& status);
Status from_grpc(const grpc::Status& status);

// RUN_DIR/gpu-worker.sock and the like. At most kSocketPathMax long, or nothing can listen there.
inline constexpr std::size_t kSocketPathMax = 107;  // sockaddr_un's 108 with the zero byte
std::string socket_path(const std::string& run_dir, const std::string& process);

struct ServerOptions {
  std::string run_dir;
  std::string name;  // "gpu-worker", "cpu-expert-worker-0", ...
  // Fills state, detail, facts, degraded, progress; called on a gRPC thread, must not block.
  std::function<void(v1::GetStatusResponse&)> status;
  std::shared_ptr<obs::Metrics> metrics;
  std::string config_hash;
  // HOST:PORT where metrics are served over HTTP, too (metrics_address()); empty: not.
  std::string metrics_listen = {};
};

class Server {
 public:
  // Removes a stale socket file, listens (mode 0600 through the directory's 0700). kAlreadyExists: somebody
  // answers there; kInvalidArgument: the run directory's path is too long for a socket.
  static Result<std::unique_ptr<Server>> start(ServerOptions options,
                                               std::vector<std::unique_ptr<grpc::Service>> services);
  ~Server();  // stops within a second, cancelling calls that are still open

  void set_serving(bool serving);  // grpc.health.v1.Health
  uint64_t instance_id() const;
  void stop();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A channel to a process of the run directory; connects lazily and reconnects quickly (100 ms to 1 s
// back-off).
std::shared_ptr<grpc::Channel> connect(const std::string& run_dir, const std::string& process);

// Every call has a deadline.
inline void set_deadline(grpc::ClientContext& context, std::chrono::milliseconds timeout) {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
}

// Where a process serves its own metrics under the setting metrics.listen (HOST:PORT of the gpu-worker; the
// cache manager has the next port, then come the expert workers); empty when the setting is, and for the
// gateway, whose HTTP server has /metrics.
std::string metrics_address(const std::string& metrics_listen, const std::string& process);

// Metrics over the wire.
void to_proto(const std::vector<prometheus::MetricFamily>& families, v1::GetMetricsResponse& out);
std::vector<prometheus::MetricFamily> from_proto(const v1::GetMetricsResponse& response);

}  // namespace strata::rpc
