#pragma once
// The Supervisor service: what `strata status` and `strata down` talk to.

#include <memory>
#include <string>

#include "services/cli/supervisor.h"
#include "services/config/load.h"
#include "strata/v1/supervisor.grpc.pb.h"

namespace strata::cli {

class SupervisorService final : public v1::Supervisor::CallbackService {
 public:
  // running: what the cluster runs with; options: how it was read, so that the file can be read again and
  // compared.
  SupervisorService(std::shared_ptr<Supervisor> supervisor, const config::Settings& running,
                    config::LoadOptions options, std::string run_dir);

  grpc::ServerUnaryReactor* GetCluster(grpc::CallbackServerContext* context,
                                       const v1::GetClusterRequest* request,
                                       v1::GetClusterResponse* response) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const v1::StopRequest* request,
                                 v1::StopResponse* response) override;

 private:
  void compare_with_file(v1::GetClusterResponse& response) const;

  std::shared_ptr<Supervisor> supervisor_;
  const config::Settings& running_;
  std::string running_hash_;
  config::LoadOptions options_;
  std::string run_dir_;
};

}  // namespace strata::cli
