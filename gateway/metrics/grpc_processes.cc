#include "gateway/metrics/grpc_processes.h"

#include "services/rpc/open_calls.h"
#include "strata/v1/process.grpc.pb.h"
#include "strata/v1/supervisor.grpc.pb.h"

namespace strata::gateway {

namespace {

constexpr std::chrono::milliseconds kTimeout{2000};

template <class Request, class Response>
struct Call {
  std::shared_ptr<grpc::ClientContext> context;
  Request request;
  Response response;
};

class GrpcProcesses final : public ProcessClient {
 public:
  GrpcProcesses(const std::string& run_dir, const std::vector<ClusterProcess>& processes)
      : supervisor_(v1::Supervisor::NewStub(rpc::connect(run_dir, "supervisor"))) {
    for (const ClusterProcess& process : processes) {
      stubs_[process.name] = v1::Process::NewStub(rpc::connect(run_dir, process.name));
    }
  }

  void get_metrics(const std::string& process, std::function<void(Result<ProcessMetrics>)> done) override {
    auto call = std::make_shared<Call<v1::GetMetricsRequest, v1::GetMetricsResponse>>();
    call->context = calls_.open(kTimeout);
    auto on_answer = [call, done = std::move(done)](const grpc::Status& status) {
      if (!status.ok()) return done(tl::unexpected(rpc::from_grpc(status)));
      done(ProcessMetrics{.instance_id = call->response.instance_id(),
                          .families = rpc::from_proto(call->response)});
    };
    stubs_.at(process)->async()->GetMetrics(call->context.get(), &call->request, &call->response,
                                            std::move(on_answer));
  }

  void get_last_exit(const std::string& process, std::function<void(std::string)> done) override {
    auto call = std::make_shared<Call<v1::GetClusterRequest, v1::GetClusterResponse>>();
    call->context = calls_.open(kTimeout);
    auto on_answer = [call, process, done = std::move(done)](const grpc::Status& status) {
      for (const auto& child : call->response.processes()) {
        if (status.ok() && child.name() == process) return done(child.last_exit());
      }
      done("");
    };
    supervisor_->async()->GetCluster(call->context.get(), &call->request, &call->response,
                                     std::move(on_answer));
  }

 private:
  std::map<std::string, std::unique_ptr<v1::Process::Stub>> stubs_;
  std::unique_ptr<v1::Supervisor::Stub> supervisor_;
  rpc::OpenCalls calls_;  // last: goes first, and waits for the calls that use the stubs
};

}  // namespace

std::unique_ptr<ProcessClient> make_grpc_processes(const std::string& run_dir,
                                                   const std::vector<ClusterProcess>& processes) {
  return std::make_unique<GrpcProcesses>(run_dir, processes);
}

}  // namespace strata::gateway
