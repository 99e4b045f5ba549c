#pragma once
// strata up --detach: the supervisor in a session of its own, its output in RUN_DIR/strata.log.

#include "services/cli/commands.h"

namespace strata::cli {

// Starts this program again without --detach and waits for its ready line, which it prints. Returns 0, or
// what the supervisor returned after printing what it had logged.
int detach(const UpOptions& options);

}  // namespace strata::cli
