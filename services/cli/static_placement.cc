#include "services/cli/static_placement.h"

#include "services/base/check.h"
#include "services/residency/policy.h"

namespace strata::cli {

std::vector<bool> place_by_profile(const residency::Profile& profile, uint32_t slots) {
  const auto policy =
      residency::make_policy("static", {.shape = {.layers = profile.layers, .experts = profile.experts},
                                        .slots = slots,
                                        .profile = profile.shares()});
  CHECK(policy.has_value(), "{}", policy.error().message());
  const std::vector<residency::SlotView> free(slots);
  std::vector<bool> resident(profile.counts.size());
  for (const residency::Proposal& proposal : (*policy)->propose(free, slots))
    resident[std::size_t{proposal.incoming.layer} * profile.experts + proposal.incoming.expert] = true;
  return resident;
}

double hit_rate(const std::vector<bool>& resident, std::span<const uint64_t> uses) {
  CHECK(resident.size() == uses.size(), "{} places, {} counts", resident.size(), uses.size());
  uint64_t hits = 0, all = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    all += uses[i];
    if (resident[i]) hits += uses[i];
  }
  return all == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(all);
}

}  // namespace strata::cli
