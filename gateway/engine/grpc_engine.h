#pragma once
// The gpu-worker over gRPC, on its Unix socket in the run directory.

#include <memory>
#include <string>

#include "gateway/engine/engine_client.h"

namespace strata::gateway {

// Its destructor cancels what is open and waits for it. Callbacks come on gRPC's threads.
std::unique_ptr<EngineClient> make_grpc_engine(const std::string& run_dir);

}  // namespace strata::gateway
