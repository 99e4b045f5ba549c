#pragma once
// Values that are a factor times one of few levels: the nearest level, and the factor that fits best.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>

namespace strata::synthetic {

// The integers first..last.
struct IntegerLevels {
  int first, last;

  int nearest(float x) const {
    return static_cast<int>(
        std::clamp(std::nearbyint(x), static_cast<float>(first), static_cast<float>(last)));
  }
  float value(int code) const { return static_cast<float>(code); }
  float reach() const { return static_cast<float>(std::max(-first, last)); }
};

// Any values; a code is a place in the list.
struct ListedLevels {
  std::span<const int8_t> values;

  int nearest(float x) const {
    int best = 0;
    float best_distance = std::fabs(x - value(0));
    for (int code = 1; code < static_cast<int>(values.size()); ++code) {
      const float distance = std::fabs(x - value(code));
      if (distance >= best_distance) continue;
      best = code;
      best_distance = distance;
    }
    return best;
  }
  float value(int code) const { return values[static_cast<std::size_t>(code)]; }
  float reach() const {
    const auto largest = std::ranges::max_element(values, {}, [](int8_t v) { return std::abs(v); });
    return static_cast<float>(std::abs(*largest));
  }
};

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline float largest_magnitude(std::span<const float> x) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::fabs(v));
  return largest;
}

template <class Levels>
int nearest_code(const Levels& levels, float x, float factor) {
  return levels.nearest(factor == 0 ? 0.0f : x / factor);
}

template <class Levels>
double squared_error(const Levels& levels, std::span<const float> x, float factor) {
  double sum = 0;
  for (const float v : x) {
    const double difference = v - factor * levels.value(nearest_code(levels, v, factor));
    sum += difference * difference;
  }
  return sum;
}

// The factor of either sign with the smallest error, of those that `round` (into the stored form) leaves.
template <class Levels, class Round>
float best_factor(const Levels& levels, std::span<const float> x, Round round) {
  constexpr float kFirst = 0.4f, kLast = 1.2f, kStep = 0.1f;  // of what just reaches the largest value
  const float full = largest_magnitude(x) / levels.reach();
  float best = 0;
  double best_error = squared_error(levels, x, 0.0f);
  for (float part = kFirst; part < kLast; part += kStep) {
    for (const float sign : {1.0f, -1.0f}) {
      const float factor = round(sign * part * full);
      const double error = squared_error(levels, x, factor);
      if (error >= best_error) continue;
      best = factor;
      best_error = error;
    }
  }
  return best;
}

}  // namespace strata::synthetic
