#pragma once
// A gRPC server on a Unix socket of its own, for tests of the services in this folder.

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "services/base/check.h"

namespace strata::gpu_worker {

class ServiceTestServer {
 public:
  explicit ServiceTestServer(std::vector<grpc::Service*> services) {
    char folder[] = "/tmp/strata-test-XXXXXX";
    CHECK(::mkdtemp(folder) != nullptr);
    folder_ = folder;
    address_ = "unix:" + (folder_ / "s").string();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    for (grpc::Service* service : services) builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    CHECK(server_ != nullptr);
  }
  ~ServiceTestServer() {
    stop();
    std::filesystem::remove_all(folder_);
  }
  void stop() { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100)); }
  std::shared_ptr<grpc::Channel> channel() const {
    return grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  }

 private:
  std::filesystem::path folder_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

inline void limit(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
}

}  // namespace strata::gpu_worker
