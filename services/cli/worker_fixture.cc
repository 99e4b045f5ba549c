// Stands in for every worker program in up_test: answers on its socket, is ready at once, and misbehaves as
// its file name's folder says (up_test.cc writes BIN_DIR/<name>.behaviour: "exit N", "stubborn" or nothing).
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "services/rpc/process_main.h"
#include "services/rpc/server.h"
#include "strata/v1/process.grpc.pb.h"

namespace {

std::string behaviour(const std::string& name) {
  std::error_code error;
  auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::ifstream in(folder / (name + ".behaviour"));
  std::string text;
  std::getline(in, text);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace strata;
  auto context = rpc::start_process(argc, argv, "fixture", "Stands in for a worker, for tests.");
  if (!context) return rpc::startup_failed(context.error());
  std::string how = behaviour(context->name);
  if (how.starts_with("exit 2"))
    return rpc::startup_failed(Status(Code::kInvalidArgument, "fixture: cannot work like this"));

  rpc::ServerOptions options;
  options.run_dir = context->run_dir;
  options.name = context->name;
  options.config_hash = context->config_hash;
  options.status = [&](v1::GetStatusResponse& response) {
    response.set_state(v1::PROCESS_STATE_READY);
    auto* fact = response.add_facts();
    fact->set_name("address");
    fact->set_value("http://" + context->settings->gateway_listen());
  };
  auto server = rpc::Server::start(std::move(options), {});
  if (!server) return rpc::startup_failed(server.error());
  rpc::wait_for_stop_signal();
  while (how == "stubborn") std::this_thread::sleep_for(std::chrono::seconds(1));
}
