#pragma once
// Random models by name: "qwen3.8-flash-next:layers=8:types=Q2_K/Q4_0".

#include <string>
#include <string_view>

#include "services/base/status.h"
#include "services/synthetic/model_plan.h"

namespace strata::synthetic {

// A preset, and what is changed of it:
//   layers=N experts=N   the kinds of layers keep their order
//   types=TYPE, types=GATE_UP/DOWN   of the experts; dense=TYPE   of all other large matrices
//   ngram=small|full     small (default): about 20,000 rows per hash; full: as many as the real model
//   seed=N
// kInvalidArgument names the part that is wrong, and what there is.
Result<ModelRequest> parse_model_spec(std::string_view text);

// One line each: name, shape, size.
std::string preset_list();

// A type by its name, e.g. "Q2_K". kInvalidArgument: weights cannot have it.
Result<TensorType> weight_type(std::string_view name);
std::string weight_type_names();

}  // namespace strata::synthetic
