#include "services/residency/worth_policy.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/residency/control.h"
#include "services/residency/quotas.h"

namespace strata::residency {

WorthPolicy::WorthPolicy(const PolicyOptions& options, Margin margin)
    : shape_(options.shape),
      worth_(std::size_t{shape_.layers} * shape_.experts),
      experts_(experts_of_layers(options)),
      quotas_(make_quotas(options)),
      margin_(margin) {
  std::ranges::copy(options.profile, worth_.begin());
}

void WorthPolicy::observe(const Usage& usage) {
  for (const auto uses : {usage.decode_uses, usage.prefill_uses}) {
    CHECK(uses.empty() || uses.size() == worth_.size(), "{} counts for {} experts", uses.size(),
          worth_.size());
  }
  learn(usage);
}

std::vector<Proposal> WorthPolicy::propose(std::span<const SlotView> slots, uint32_t budget) {
  return plan_exchanges({shape_, experts_, quotas(), worth_, control_.pins, margin_}, slots, budget);
}

Status WorthPolicy::control(Control control) {
  TRY_OK(check_control(control, experts_, quotas_));
  control_ = std::move(control);
  return {};
}

}  // namespace strata::residency
