#pragma once
// No NaN and no infinity in float tensors and block scales (gguf-format, check 18). A pass over all data.

#include <string>

#include "services/base/status.h"
#include "services/gguf/gguf_file.h"

namespace strata::gguf {

// kDataLoss at the first block with a scale, minimum or value that is not finite.
Status check_finite(const TensorInfo& tensor, const std::string& path);

}  // namespace strata::gguf
