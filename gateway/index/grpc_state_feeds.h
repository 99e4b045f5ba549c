#pragma once
// The two feeds over gRPC, on the keepers' Unix sockets in the run directory.

#include <memory>
#include <string>

#include "gateway/index/state_feed.h"

namespace strata::gateway {

// Their destructors cancel what is open and wait for it. Callbacks come on gRPC's threads.
std::unique_ptr<StateFeed> make_engine_feed(const std::string& run_dir);  // States of the gpu-worker
std::unique_ptr<StateFeed> make_store_feed(const std::string& run_dir);   // Snapshots of the cache manager

}  // namespace strata::gateway
