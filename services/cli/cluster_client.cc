#include "services/cli/cluster_client.h"

#include "services/cli/commands.h"
#include "services/cli/run_dir.h"
#include "services/config/load.h"
#include "services/rpc/server.h"

namespace strata::cli {

namespace {

// One call on a channel of its own.
template <class Service, class Response, class Request>
Result<Response> ask(const std::string& run_dir, const std::string& process,
                     grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                     const Request& request = {}, std::chrono::milliseconds timeout = kQuestionTimeout) {
  auto stub = Service::NewStub(rpc::connect(run_dir, process));
  grpc::ClientContext context;
  rpc::set_deadline(context, timeout);
  Response response;
  grpc::Status status = (stub.get()->*method)(&context, request, &response);
  if (!status.ok()) return tl::unexpected(rpc::from_grpc(status));
  return response;
}

Status not_running(const std::string& run_dir, const Status& why) {
  if (why.code() != Code::kUnavailable) return why;
  return fail(Code::kFailedPrecondition,
              "no cluster runs in {} (strata up starts one; --run-dir names another place)", run_dir);
}

}  // namespace

Result<v1::GetClusterResponse> get_cluster(const std::string& run_dir) {
  auto cluster = ask<v1::Supervisor>(run_dir, "supervisor", &v1::Supervisor::Stub::GetCluster);
  if (!cluster) return tl::unexpected(not_running(run_dir, cluster.error()));
  return cluster;
}

Status stop_cluster(const std::string& run_dir) {
  auto stopped = ask<v1::Supervisor>(run_dir, "supervisor", &v1::Supervisor::Stub::Stop);
  return stopped ? Status() : not_running(run_dir, stopped.error());
}

Result<v1::GetStatusResponse> get_process(const std::string& run_dir, const std::string& process) {
  return ask<v1::Process>(run_dir, process, &v1::Process::Stub::GetStatus);
}

Result<v1::GetMetricsResponse> get_metrics(const std::string& run_dir, const std::string& process) {
  return ask<v1::Process>(run_dir, process, &v1::Process::Stub::GetMetrics);
}

Result<v1::GetEngineResponse> get_engine(const std::string& run_dir) {
  return ask<v1::Engine>(run_dir, "gpu-worker", &v1::Engine::Stub::GetEngine);
}

Result<v1::GetResidencyResponse> get_residency(const std::string& run_dir) {
  return ask<v1::Cache>(run_dir, "cache-manager", &v1::Cache::Stub::GetResidency);
}

Result<v1::GetResidencyResponse> change_residency(const std::string& run_dir,
                                                  const v1::ChangeResidencyRequest& request) {
  return ask<v1::Cache>(run_dir, "cache-manager", &v1::Cache::Stub::ChangeResidency, request);
}

Result<v1::ListSnapshotsResponse> list_snapshots(const std::string& run_dir,
                                                 const v1::ListSnapshotsRequest& request) {
  return ask<v1::Snapshots>(run_dir, "cache-manager", &v1::Snapshots::Stub::List, request);
}

Result<v1::DropSnapshotsResponse> drop_snapshots(const std::string& run_dir,
                                                 const v1::DropSnapshotsRequest& request) {
  return ask<v1::Snapshots>(run_dir, "cache-manager", &v1::Snapshots::Stub::Drop, request);
}

Result<v1::ExportSnapshotResponse> export_snapshot(const std::string& run_dir,
                                                   const v1::ExportSnapshotRequest& request) {
  return ask<v1::Snapshots>(run_dir, "cache-manager", &v1::Snapshots::Stub::Export, request, kFileTimeout);
}

Result<v1::ImportSnapshotResponse> import_snapshot(const std::string& run_dir,
                                                   const v1::ImportSnapshotRequest& request) {
  return ask<v1::Snapshots>(run_dir, "cache-manager", &v1::Snapshots::Stub::Import, request, kFileTimeout);
}

Result<Url> api_url(const std::string& url, const std::string& run_dir) {
  if (!url.empty()) return parse_url(url);
  TRY(v1::GetClusterResponse cluster, get_cluster(run_dir));
  if (cluster.address().empty())
    return fail(Code::kUnavailable, "the cluster in {} is still starting", run_dir);
  return cluster_url(cluster.address(), run_dir);
}

Result<Url> cluster_url(const std::string& address, const std::string& run_dir) {
  TRY(Url url, parse_url(address));
  if (!url.tls) return url;
  // What the supervisor has handed to its children: complete, with absolute paths.
  TRY(const auto settings, config::load({.path = RunDir::config_path(run_dir), .use_environment = false}));
  url.certificate = settings->gateway_tls_certificate().string();
  return url;
}

int exit_code_of(const Status& status) {
  return status.code() == Code::kFailedPrecondition ? kExitNotRunning : kExitFailed;
}

int report_answer(const std::string& run_dir, const Status& status) {
  if (status.code() == Code::kUnavailable) {
    if (const auto cluster = get_cluster(run_dir); !cluster)
      return report(cluster.error(), exit_code_of(cluster.error()));
  }
  return report(status, status.code() == Code::kInvalidArgument ? kExitFault : kExitFailed);
}

}  // namespace strata::cli
