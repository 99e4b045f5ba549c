#include "services/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace strata::model {

Rope::Rope(const RopeConfig& config) : frequencies_(config.dims / 2) {
  const double dims = config.dims;
  const double base = config.base;
  for (std::size_t i = 0; i < frequencies_.size(); ++i)
    frequencies_[i] = std::pow(base, -2.0 * static_cast<double>(i) / dims);
  if (config.factor == 1.0f) return;

  // YaRN: pairs that turn often within the original context stay, those that turn less than once are
  // stretched, a ramp between.
  const double factor = config.factor;
  const auto pair_turning = [&](double turns) {
    return dims * std::log(config.original_context / (2 * std::numbers::pi * turns)) / (2 * std::log(base));
  };
  const double low = std::clamp(std::floor(pair_turning(config.beta_fast)), 0.0, dims - 1);
  const double high = std::clamp(std::ceil(pair_turning(config.beta_slow)), 0.0, dims - 1);
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / std::max(high - low, 0.001), 0.0, 1.0);
    frequencies_[i] *= (1 - ramp) + ramp / factor;
  }
  magnitude_ = 1 + 0.1 * std::log(factor);
}

void Rope::turn_at(uint32_t position, float* turn) const {
  float* sines = turn + frequencies_.size();
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double angle = position * frequencies_[i];
    turn[i] = static_cast<float>(magnitude_ * std::cos(angle));
    sines[i] = static_cast<float>(magnitude_ * std::sin(angle));
  }
}

void Rope::rotate(const float* turn, float* head) const {
  const std::size_t half = frequencies_.size();
  const float* sines = turn + half;
  for (std::size_t i = 0; i < half; ++i) {
    const float x = head[i], y = head[i + half];
    head[i] = x * turn[i] - y * sines[i];
    head[i + half] = y * turn[i] + x * sines[i];
  }
}

}  // namespace strata::model
