#include <cstdio>

#include "services/cli/commands.h"

namespace strata::cli {

int run_config_check(const config::LoadOptions& options) {
  auto faults = config::find_faults(options);
  for (const std::string& fault : faults) std::fprintf(stderr, "%s\n", fault.c_str());
  if (!faults.empty()) return kExitFault;
  fmt::print("OK\n");
  return 0;
}

int run_config_show(const config::LoadOptions& options, bool comments) {
  auto settings = config::load(options);
  if (!settings) return report(settings.error(), kExitFault);
  fmt::print("{}", config::to_yaml(**settings, comments, config::SecretsShown::kHidden));
  return 0;
}

int run_config_reference() {
  fmt::print("{}", config::reference_markdown());
  return 0;
}

}  // namespace strata::cli
