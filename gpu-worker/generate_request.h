#pragma once
// From the wire to a GenerationRequest: every field is checked here, once, so that the window loop can trust
// it.

#include <cstdint>

#include "gpu-worker/generation.h"
#include "services/base/status.h"
#include "strata/v1/engine.pb.h"

namespace strata::gpu_worker {

struct RequestLimits {
  uint32_t vocab = 0;
  uint32_t context_tokens = 0;
};

// kInvalidArgument names the field; kOutOfRange: prompt and known answer do not fit the context (the message
// has both numbers). A request without `sampling` is greedy.
Result<GenerationRequest> read_generate_request(const v1::GenerateRequest& request,
                                                const RequestLimits& limits);

}  // namespace strata::gpu_worker
