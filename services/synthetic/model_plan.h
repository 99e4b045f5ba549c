#pragma once
// A `qwen4exp` model of random weights before anything of it is written: its metadata, and the list of its
// tensors with the distribution of their values.

#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/gguf/file_builder.h"
#include "services/synthetic/model_shape.h"
#include "services/synthetic/random.h"

namespace strata::synthetic {

// The metadata key whose value says that, and how, the weights were made up.
inline constexpr std::string_view kSyntheticKey = "strata.synthetic";

struct TensorPlan {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<uint64_t> dims;  // as in the file: the contiguous one first
  float deviation = 0;         // nearly normal values
  float mean = 0;

  uint64_t values() const;
  uint64_t bytes() const;
};

struct ModelPlan {
  gguf::FileBuilder metadata;  // without tensors
  std::vector<TensorPlan> tensors;

  uint64_t bytes() const;  // of all tensors
};

struct ModelRequest {
  ModelShape shape = {};
  ModelTypes types = {};
  uint64_t seed = 1;
  std::string name = "random";     // general.name
  std::string made_of = "random";  // what kSyntheticKey says
};

// kInvalidArgument: sizes that do not fit each other, or the tensor that a type does not fit.
Result<ModelPlan> plan_model(const ModelRequest& request);

// The numbers of one tensor: they depend on the seed and its name, not on any type.
Random random_of(uint64_t seed, std::string_view name);

}  // namespace strata::synthetic
