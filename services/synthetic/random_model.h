#pragma once
// Small random models, for tests: every value of its own, as exact as its type allows.

#include <string>

#include "services/base/status.h"
#include "services/synthetic/model_plan.h"

namespace strata::synthetic {

// The bytes of the file. A tensor's values depend on the seed, its name and its shape, not on any type.
Result<std::string> make_model(const ModelRequest& request);

}  // namespace strata::synthetic
