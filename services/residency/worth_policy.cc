#include "services/residency/worth_policy.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/residency/control.h"

namespace strata::residency {

WorthPolicy::WorthPolicy(const PolicyOptions& options, Margin margin, uint64_t stay_tokens)
    : shape_(options.shape),
      worth_(std::size_t{shape_.layers} * shape_.experts),
      experts_(experts_of_layers(options)),
      slots_(options.slots),
      planner_(shape_, experts_),
      margin_(margin),
      stay_tokens_(stay_tokens) {
  std::ranges::copy(options.profile, worth_.begin());
}

void WorthPolicy::observe(const Usage& usage) {
  for (const auto uses : {usage.decode_uses, usage.prefill_uses}) {
    CHECK(uses.empty() || uses.size() == worth_.size(), "{} counts for {} experts", uses.size(),
          worth_.size());
  }
  decoded_tokens_ += usage.decode_tokens;
  learn(usage);
}

std::vector<Proposal> WorthPolicy::propose(std::span<const SlotView> slots, uint32_t budget) {
  return planner_.plan({control_.quotas, worth_, control_.pins, margin_, decoded_tokens_, stay_tokens_},
                       slots, budget);
}

Status WorthPolicy::control(Control control) {
  TRY_OK(check_control(control, experts_, slots_));
  control_ = std::move(control);
  return {};
}

}  // namespace strata::residency
