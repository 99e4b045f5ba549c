#pragma once
// The mapped file's expert tensors, page-locked for copies at full speed. Where the system refuses (memory
// that may not be locked, too little of it), copies still work, slower.

#include <span>
#include <string>
#include <vector>

#include "services/model/model_weights.h"

namespace strata::gpu_worker::cuda {

class RegisteredExperts {
 public:
  RegisteredExperts() = default;
  explicit RegisteredExperts(const model::ModelWeights& weights);
  RegisteredExperts(RegisteredExperts&& other) noexcept = default;
  RegisteredExperts& operator=(RegisteredExperts&& other) noexcept;
  ~RegisteredExperts();

  uint64_t bytes() const { return bytes_; }
  const std::string& refusal() const { return refusal_; }  // CUDA's reason; empty: everything is registered

 private:
  std::vector<std::byte*> ranges_;
  uint64_t bytes_ = 0;
  std::string refusal_;
};

// The ranges of memory, whole pages, that hold these pieces; pieces that share a page share a range.
std::vector<std::span<const std::byte>> page_ranges(std::vector<std::span<const std::byte>> pieces);

}  // namespace strata::gpu_worker::cuda
