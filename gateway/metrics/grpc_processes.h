#pragma once
// The other processes of the cluster over gRPC, on their sockets in the run directory.

#include <memory>
#include <string>
#include <vector>

#include "gateway/metrics/metrics_gatherer.h"

namespace strata::gateway {

// Its destructor cancels what is open and waits for it. Callbacks come on gRPC's threads.
std::unique_ptr<ProcessClient> make_grpc_processes(const std::string& run_dir,
                                                   const std::vector<ClusterProcess>& processes);

}  // namespace strata::gateway
