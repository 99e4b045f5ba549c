#include "services/residency/quotas.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace strata::residency {
namespace {

uint32_t slots_in_use(const PolicyOptions& options) {
  const uint64_t experts = uint64_t{options.shape.layers} * options.shape.experts;
  return static_cast<uint32_t>(std::min<uint64_t>(options.slots, experts));
}

std::vector<uint32_t> equal_parts(uint32_t slots, uint32_t layers) {
  std::vector<uint32_t> quotas(layers, slots / layers);
  for (uint32_t layer = 0; layer < slots % layers; ++layer) ++quotas[layer];
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

std::vector<uint32_t> parts_by_gain(uint32_t slots, const PolicyOptions& options) {
  const auto [layers, experts] = options.shape;
  std::vector<float> sorted = options.profile;  // within each layer, the largest first
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const auto begin = sorted.begin() + static_cast<std::ptrdiff_t>(layer) * experts;
    std::sort(begin, begin + experts, std::greater());
  }
  const uint32_t minimum = slots < layers ? 0 : std::max(1U, slots / layers / 2);
  std::vector<uint32_t> quotas(layers, minimum);
  std::priority_queue<Gain> gains;
  auto offer_next = [&](uint32_t layer) {
    if (quotas[layer] < experts) gains.push({sorted[std::size_t{layer} * experts + quotas[layer]], layer});
  };
  for (uint32_t layer = 0; layer < layers; ++layer) offer_next(layer);
  for (uint32_t left = slots - minimum * layers; left > 0; --left) {
    const uint32_t layer = gains.top().layer;
    gains.pop();
    ++quotas[layer];
    offer_next(layer);
  }
  return quotas;
}

}  // namespace

std::vector<uint32_t> make_quotas(const PolicyOptions& options) {
  const uint32_t slots = slots_in_use(options);
  return options.profile.empty() ? equal_parts(slots, options.shape.layers) : parts_by_gain(slots, options);
}

}  // namespace strata::residency
