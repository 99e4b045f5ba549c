#include "services/cli/child_spec.h"

#include <fmt/format.h>

#include <filesystem>

#include "services/expert/thread_plan.h"

namespace strata::cli {

std::vector<ChildSpec> cluster_children(const config::Settings& settings, const std::string& bin_dir,
                                        const std::string& run_dir, const std::string& config_path) {
  auto child = [&](const std::string& program, const std::string& name) {
    ChildSpec spec;
    spec.name = name;
    spec.arguments = {bin_dir + "/" + program, "--name", name, "--config", config_path, "--run-dir", run_dir};
    return spec;
  };
  std::vector<ChildSpec> children;
  children.push_back(child("strata-gpu-worker", "gpu-worker"));
  children.back().essential = true;
  children.push_back(child("strata-cache-manager", "cache-manager"));
  for (uint32_t worker = 0; worker < expert::worker_count(settings); ++worker) {
    children.push_back(child("strata-cpu-expert-worker", fmt::format("cpu-expert-worker-{}", worker)));
  }
  children.push_back(child("strata-gateway", "gateway"));
  children.back().drains = true;
  children.back().essential = true;
  return children;
}

std::string own_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

}  // namespace strata::cli
