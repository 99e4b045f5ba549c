#pragma once
// Names of the arrays of a state (model-qwen4exp section 10), the same on every device.

#include <cstdint>
#include <string>

#include "services/base/status.h"

namespace strata::gpu_worker::state_name {

inline constexpr const char* kDelta = "delta";               // S of a recurrent layer, float32
inline constexpr const char* kDeltaInputs = "delta_inputs";  // of its convolution
inline constexpr const char* kKeys = "keys";
inline constexpr const char* kValues = "values";
inline constexpr const char* kKeyScales = "key_scales";  // of 8-bit keys
inline constexpr const char* kValueScales = "value_scales";
inline constexpr const char* kBlockKeys = "block_keys";  // of finished blocks
inline constexpr const char* kBlockTail = "block_tail";  // raw keys of the unfinished block
inline constexpr const char* kNgramInputs = "ngram_inputs";
inline constexpr const char* kNgramContext = "ngram_context";  // token ids

inline std::string of(const char* name, uint32_t layer) { return fmt::format("{}.{}", name, layer); }

}  // namespace strata::gpu_worker::state_name
