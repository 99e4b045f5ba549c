#pragma once
// How the commands reach a running cluster: its processes over their sockets, its API over HTTP.

#include <memory>
#include <string>

#include "services/base/status.h"
#include "services/sys/process.h"
#include "strata/v1/cache.grpc.pb.h"
#include "strata/v1/engine.grpc.pb.h"
#include "strata/v1/process.grpc.pb.h"
#include "strata/v1/supervisor.grpc.pb.h"

namespace strata::cli {

// Every question is answered within this time, or the process counts as silent.
inline constexpr auto kQuestionTimeout = std::chrono::milliseconds(3000);

// kFailedPrecondition: no cluster runs there (the message says so).
Result<v1::GetClusterResponse> get_cluster(const std::string& run_dir);
Status stop_cluster(const std::string& run_dir);

Result<v1::GetStatusResponse> get_process(const std::string& run_dir, const std::string& process);
Result<v1::GetMetricsResponse> get_metrics(const std::string& run_dir, const std::string& process);
Result<v1::GetEngineResponse> get_engine(const std::string& run_dir);
Result<v1::GetResidencyResponse> get_residency(const std::string& run_dir);
Result<v1::GetResidencyResponse> change_residency(const std::string& run_dir,
                                                  const v1::ChangeResidencyRequest& request);

// The URL to talk to: `url` if given, else that of the cluster in run_dir.
Result<std::string> api_url(const std::string& url, const std::string& run_dir);

// kExitNotRunning for get_cluster's kFailedPrecondition, else kExitFailed.
int exit_code_of(const Status& status);

}  // namespace strata::cli
