#include <algorithm>

#include "services/rpc/server.h"

namespace strata::rpc {

namespace {

constexpr int kReconnectFirstMs = 100;
constexpr int kReconnectMaxMs = 1000;
constexpr int kMessageBytesMax = 64 << 20;

}  // namespace

std::string socket_path(const std::string& run_dir, const std::string& process) {
  return run_dir + "/" + process + ".sock";
}

std::shared_ptr<grpc::Channel> connect(const std::string& run_dir, const std::string& process) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectFirstMs);
  // GRPC_ARG_MIN_RECONNECT_BACKOFF_MS stays as it is: despite its name it is how long one attempt may take,
  // and on a busy machine a handshake takes a while.
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  // Without a pool of its own a channel would share the connection, and its back-off, with every other one to
  // that process.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  return grpc::CreateCustomChannel("unix:" + socket_path(run_dir, process),
                                   grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace strata::rpc
