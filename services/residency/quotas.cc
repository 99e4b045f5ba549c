#include "services/residency/quotas.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <span>

namespace strata::residency {
namespace {

uint32_t slots_in_use(uint32_t slots, std::span<const uint32_t> experts) {
  const uint64_t all = std::accumulate(experts.begin(), experts.end(), uint64_t{0});
  return static_cast<uint32_t>(std::min<uint64_t>(slots, all));
}

std::vector<uint32_t> equal_parts(uint32_t slots, std::span<const uint32_t> experts) {
  std::vector<uint32_t> quotas(experts.size());
  const auto layers = static_cast<uint32_t>(experts.size());
  uint32_t left = slots;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    quotas[layer] = std::min(slots / layers, experts[layer]);
    left -= quotas[layer];
  }
  while (left > 0) {
    for (uint32_t layer = 0; layer < layers && left > 0; ++layer) {
      if (quotas[layer] == experts[layer]) continue;
      ++quotas[layer];
      --left;
    }
  }
  return quotas;
}

// What one more slot of a layer would bring.
struct Gain {
  float share = 0;
  uint32_t layer = 0;
  // The priority queue's top: the largest share; of equal ones the first layer.
  bool operator<(const Gain& other) const {
    return share != other.share ? share < other.share : layer > other.layer;
  }
};

std::vector<uint32_t> parts_by_gain(uint32_t slots, std::span<const uint32_t> experts_of,
                                    const PolicyOptions& options) {
  const auto [layers, experts] = options.shape;
  std::vector<float> sorted = options.profile;  // within each layer, the largest first
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const auto begin = sorted.begin() + static_cast<std::ptrdiff_t>(layer) * experts;
    std::sort(begin, begin + experts, std::greater());
  }
  const uint32_t minimum = slots < layers ? 0 : std::max(1U, slots / layers / 2);
  std::vector<uint32_t> quotas(layers);
  for (uint32_t layer = 0; layer < layers; ++layer) quotas[layer] = std::min(minimum, experts_of[layer]);
  std::priority_queue<Gain> gains;
  auto offer_next = [&](uint32_t layer) {
    if (quotas[layer] < experts_of[layer])
      gains.push({sorted[std::size_t{layer} * experts + quotas[layer]], layer});
  };
  for (uint32_t layer = 0; layer < layers; ++layer) offer_next(layer);
  for (uint32_t left = slots - std::accumulate(quotas.begin(), quotas.end(), 0U); left > 0; --left) {
    const uint32_t layer = gains.top().layer;
    gains.pop();
    ++quotas[layer];
    offer_next(layer);
  }
  return quotas;
}

}  // namespace

std::vector<uint32_t> experts_of_layers(const PolicyOptions& options) {
  if (!options.experts_of_layer.empty()) return options.experts_of_layer;
  return std::vector<uint32_t>(options.shape.layers, options.shape.experts);
}

std::vector<uint32_t> make_quotas(const PolicyOptions& options) {
  const std::vector<uint32_t> experts = experts_of_layers(options);
  const uint32_t slots = slots_in_use(options.slots, experts);
  return options.profile.empty() ? equal_parts(slots, experts) : parts_by_gain(slots, experts, options);
}

}  // namespace strata::residency
