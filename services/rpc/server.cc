#include "services/rpc/server.h"

#include <fcntl.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "services/base/check.h"
#include "services/rpc/metrics_http.h"
#include "services/rpc/process_service.h"
#include "services/shm/segment.h"
#include "services/sys/process.h"

namespace strata::rpc {

namespace {

constexpr auto kShutdownGrace = std::chrono::milliseconds(200);
constexpr int kMessageBytesMax = 64 << 20;

// A socket file is left over when nobody accepts on it. Only then may it be removed: taking away the socket
// of a running process would leave it alive and unreachable.
Status remove_stale_socket(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return fail(Code::kPermissionDenied, "{}: {}", path, std::strerror(errno));
  }
  if (!S_ISSOCK(info.st_mode)) return fail(Code::kAlreadyExists, "{}: exists and is not a socket", path);
  sys::FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  int connected = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (connected == 0 || errno != ECONNREFUSED) {
    return fail(Code::kAlreadyExists, "{}: another process answers there", path);
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return fail(Code::kPermissionDenied, "{}: a stale socket that cannot be removed: {}", path,
                std::strerror(errno));
  }
  return {};
}

}  // namespace

struct Server::Impl {
  explicit Impl(ServerOptions its_options) : options(std::move(its_options)) {}

  ServerOptions options;
  uint64_t instance_id = shm::random_instance_id();
  ProcessService process_service{options, instance_id};
  std::vector<std::unique_ptr<grpc::Service>> services;
  std::unique_ptr<MetricsHttp> metrics_http;
  std::unique_ptr<grpc::Server> server;
  std::once_flag stopped;
};

Result<std::unique_ptr<Server>> Server::start(ServerOptions options,
                                              std::vector<std::unique_ptr<grpc::Service>> services) {
  std::string path = socket_path(options.run_dir, options.name);
  if (path.size() > kSocketPathMax) {
    return fail(Code::kInvalidArgument,
                "{}: a socket's path may have {} characters, this one has {}; choose a shorter --run-dir",
                path, kSocketPathMax, path.size());
  }
  TRY_OK(remove_stale_socket(path));

  auto impl = std::make_unique<Impl>(std::move(options));
  impl->services = std::move(services);
  if (!impl->options.metrics_listen.empty() && impl->options.metrics) {
    TRY(impl->metrics_http, MetricsHttp::start(impl->options.metrics_listen, impl->options.metrics));
  }

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.RegisterService(&impl->process_service);
  for (auto& service : impl->services) builder.RegisterService(service.get());
  impl->server = builder.BuildAndStart();
  if (!impl->server) return fail(Code::kUnavailable, "{}: cannot listen there", path);
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { stop(); }

void Server::set_serving(bool serving) { impl_->server->GetHealthCheckService()->SetServingStatus(serving); }

uint64_t Server::instance_id() const { return impl_->instance_id; }

void Server::stop() {
  std::call_once(impl_->stopped, [this] {
    impl_->server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    ::unlink(socket_path(impl_->options.run_dir, impl_->options.name).c_str());
  });
}

}  // namespace strata::rpc
