#pragma once
// Which processes make up a cluster, and how each is started.

#include <string>
#include <vector>

#include "services/config/settings.h"

namespace strata::cli {

struct ChildSpec {
  std::string name;                    // "gpu-worker", "cpu-expert-worker-0"
  std::vector<std::string> arguments;  // [0] is the program's path
  // At stop this one ends first: it takes no new requests and lets running answers end (the gateway).
  bool drains = false;
  bool essential = false;  // without it no request is answered
};

// bin_dir: the folder of the programs. The gpu-worker comes first, for the others attach to it.
std::vector<ChildSpec> cluster_children(const config::Settings& settings, const std::string& bin_dir,
                                        const std::string& run_dir, const std::string& config_path);

// The folder of the running program.
std::string own_folder();

}  // namespace strata::cli
