#pragma once
// Rotary positions (model-qwen4exp section 7): the first `dims` values of a head turn in pairs (i, i +
// dims/2).

#include <cstdint>
#include <vector>

#include "services/model/model_config.h"

namespace strata::model {

class Rope {
 public:
  explicit Rope(const RopeConfig& config);

  uint32_t pairs() const { return static_cast<uint32_t>(frequencies_.size()); }
  // cos then sin of every pair at a position, (2, pairs). Angles are computed in double and the results
  // rounded to float32: the only place of the pass where the C library's functions are used.
  void turn_at(uint32_t position, float* turn) const;
  // Turns one head by what turn_at() gave.
  void rotate(const float* turn, float* head) const;

 private:
  std::vector<double> frequencies_;  // radians per position
  double magnitude_ = 1.0;           // YaRN multiplies cos and sin
};

}  // namespace strata::model
