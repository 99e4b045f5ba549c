#pragma once
// Numbers for models, from integers only: the same seed gives the same file on every machine.

#include <cstdint>
#include <vector>

namespace strata::synthetic {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Nearly normal, standard deviation 1: the sum of four 16-bit numbers, at most 3.5 of either sign.
  float normal() {
    const uint64_t bits = next();
    const auto sum =
        static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    constexpr float kDeviation = 37837.2f;  // 65536 / sqrt(3)
    return static_cast<float>(sum - 2 * 65535) / kDeviation;
  }
  std::vector<float> normals(std::size_t count, float deviation, float mean = 0) {
    std::vector<float> values(count);
    for (float& v : values) v = mean + deviation * normal();
    return values;
  }

 private:
  uint64_t state_;
};

}  // namespace strata::synthetic
