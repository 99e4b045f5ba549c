#include <cstdio>

#include "services/base/build_info.h"
#include "services/cli/commands.h"

namespace strata::cli {

int report(const Status& status, int exit_code) {
  std::fprintf(stderr, "strata: %s\n", status.message().c_str());
  return exit_code;
}

int run_version() {
  fmt::print("strata {} ({})\n", version(), commit());
  return 0;
}

}  // namespace strata::cli
