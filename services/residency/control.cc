#include "services/residency/control.h"

#include <algorithm>
#include <numeric>

namespace strata::residency {
namespace {

Status check_quotas(std::span<const uint32_t> quotas, std::span<const uint32_t> experts, uint64_t sum) {
  if (quotas.size() != experts.size()) {
    return fail(Code::kInvalidArgument, "{} quotas for {} layers", quotas.size(), experts.size());
  }
  for (std::size_t layer = 0; layer < quotas.size(); ++layer) {
    if (quotas[layer] > experts[layer]) {
      return fail(Code::kInvalidArgument, "a quota of {} for layer {}, which has {} experts", quotas[layer],
                  layer, experts[layer]);
    }
  }
  const uint64_t given = std::accumulate(quotas.begin(), quotas.end(), uint64_t{0});
  if (given != sum) {
    return fail(Code::kInvalidArgument, "the quotas give out {} slots, expected all {}", given, sum);
  }
  return {};
}

Status check_pins(const Control& control, std::span<const uint32_t> experts, uint32_t slots) {
  std::vector<ExpertKey> pins = control.pins;
  std::ranges::sort(pins);
  if (pins.size() > slots) {
    return fail(Code::kInvalidArgument, "{} experts are pinned, there are {} slots", pins.size(), slots);
  }
  uint32_t of_layer = 0;
  for (std::size_t i = 0; i < pins.size(); ++i) {
    const auto [layer, expert] = pins[i];
    if (layer >= experts.size() || expert >= experts[layer]) {
      return fail(Code::kInvalidArgument, "cannot pin layer {} expert {}: the model has none", layer, expert);
    }
    if (i > 0 && pins[i] == pins[i - 1]) {
      return fail(Code::kInvalidArgument, "layer {} expert {} is pinned twice", layer, expert);
    }
    of_layer = i > 0 && pins[i - 1].layer == layer ? of_layer + 1 : 1;
    if (!control.quotas.empty() && of_layer > control.quotas[layer]) {
      return fail(Code::kInvalidArgument, "more experts of layer {} are pinned than its quota of {}", layer,
                  control.quotas[layer]);
    }
  }
  return {};
}

}  // namespace

Status check_control(const Control& control, std::span<const uint32_t> experts, uint32_t slots) {
  if (!control.quotas.empty()) {
    const uint64_t all = std::accumulate(experts.begin(), experts.end(), uint64_t{0});
    TRY_OK(check_quotas(control.quotas, experts, std::min<uint64_t>(slots, all)));
  }
  return check_pins(control, experts, slots);
}

}  // namespace strata::residency
