#pragma once
// How the commands reach a running cluster: its processes over their sockets, its API over HTTP.

#include <memory>
#include <string>

#include "services/base/status.h"
#include "services/cli/http_client.h"
#include "services/sys/process.h"
#include "strata/v1/cache.grpc.pb.h"
#include "strata/v1/engine.grpc.pb.h"
#include "strata/v1/process.grpc.pb.h"
#include "strata/v1/snapshots.grpc.pb.h"
#include "strata/v1/supervisor.grpc.pb.h"

namespace strata::cli {

// Every question is answered within this time, or the process counts as silent.
inline constexpr auto kQuestionTimeout = std::chrono::milliseconds(3000);
// A snapshot goes into a file or comes out of one: gigabytes, perhaps on a slow disk.
inline constexpr auto kFileTimeout = std::chrono::milliseconds(600'000);

// kFailedPrecondition: no cluster runs there (the message says so).
Result<v1::GetClusterResponse> get_cluster(const std::string& run_dir);
Status stop_cluster(const std::string& run_dir);

Result<v1::GetStatusResponse> get_process(const std::string& run_dir, const std::string& process);
Result<v1::GetMetricsResponse> get_metrics(const std::string& run_dir, const std::string& process);
Result<v1::GetEngineResponse> get_engine(const std::string& run_dir);
Result<v1::GetResidencyResponse> get_residency(const std::string& run_dir);
Result<v1::GetResidencyResponse> change_residency(const std::string& run_dir,
                                                  const v1::ChangeResidencyRequest& request);

// As strata/v1/snapshots.proto says, with its errors.
Result<v1::ListSnapshotsResponse> list_snapshots(const std::string& run_dir,
                                                 const v1::ListSnapshotsRequest& request);
Result<v1::DropSnapshotsResponse> drop_snapshots(const std::string& run_dir,
                                                 const v1::DropSnapshotsRequest& request);
Result<v1::ExportSnapshotResponse> export_snapshot(const std::string& run_dir,
                                                   const v1::ExportSnapshotRequest& request);
Result<v1::ImportSnapshotResponse> import_snapshot(const std::string& run_dir,
                                                   const v1::ImportSnapshotRequest& request);

// The URL to talk to: `url` if given, else that of the cluster in run_dir.
Result<Url> api_url(const std::string& url, const std::string& run_dir);
// The address that a cluster has given, with the certificate of its own configuration if it speaks https.
Result<Url> cluster_url(const std::string& address, const std::string& run_dir);

// kExitNotRunning for get_cluster's kFailedPrecondition, else kExitFailed.
int exit_code_of(const Status& status);

// Reports what a process answered with and returns the exit code: kExitFault for kInvalidArgument. Where it
// is silent because no cluster runs there, it says that, kExitNotRunning.
int report_answer(const std::string& run_dir, const Status& status);

}  // namespace strata::cli
