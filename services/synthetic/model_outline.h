#pragma once
// A model of random weights of which only the shape is there: for planning. The file has its metadata and its
// tensor table; where the weights would be are zeros that take no memory and no disk until somebody reads
// them.

#include "services/base/status.h"
#include "services/gguf/gguf_file.h"
#include "services/synthetic/model_plan.h"

namespace strata::synthetic {

// kUnavailable: the system gives no such file.
Result<gguf::GgufFile> open_outline(const ModelPlan& plan);

}  // namespace strata::synthetic
