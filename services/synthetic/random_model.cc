#include "services/synthetic/random_model.h"

#include "services/synthetic/encoder.h"

namespace strata::synthetic {

Result<std::string> make_model(const ModelRequest& request) {
  TRY(ModelPlan plan, plan_model(request));
  gguf::FileBuilder& file = plan.metadata;
  for (const TensorPlan& tensor : plan.tensors) {
    const auto values =
        random_of(request.seed, tensor.name).normals(tensor.values(), tensor.deviation, tensor.mean);
    file.tensor(tensor.name, tensor.type, tensor.dims, encode_values(*find_encoder(tensor.type), values));
  }
  return file.build();
}

}  // namespace strata::synthetic
