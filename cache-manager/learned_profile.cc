#include "cache-manager/learned_profile.h"

#include <utility>

#include "services/base/check.h"

namespace strata::cache_manager {

LearnedProfile::LearnedProfile(std::string model_fingerprint, uint32_t layers, uint32_t experts) {
  profile_.model_fingerprint = std::move(model_fingerprint);
  profile_.layers = layers;
  profile_.experts = experts;
  profile_.counts.resize(std::size_t{layers} * experts);
}

Status LearnedProfile::check_shape(const residency::Profile& other) const {
  if (other.layers != profile_.layers || other.experts != profile_.experts ||
      other.counts.size() != profile_.counts.size()) {
    return fail(Code::kFailedPrecondition, "a profile of {} layers with {} experts; the model has {} with {}",
                other.layers, other.experts, profile_.layers, profile_.experts);
  }
  return {};
}

Status LearnedProfile::resume(const residency::Profile& learned) {
  TRY_OK(check_shape(learned));
  profile_.counts = learned.counts;
  profile_.tokens = learned.tokens;
  profile_.topics = learned.topics;
  return {};
}

Status LearnedProfile::begin_with(const residency::Profile& recorded) {
  TRY_OK(resume(recorded));
  if (profile_.tokens <= kPriorTokensMax) return {};
  double factor = static_cast<double>(kPriorTokensMax) / static_cast<double>(profile_.tokens);
  for (uint64_t& count : profile_.counts) count = static_cast<uint64_t>(static_cast<double>(count) * factor);
  profile_.tokens = kPriorTokensMax;
  return {};
}

void LearnedProfile::add(std::span<const uint32_t> uses, uint64_t tokens) {
  CHECK(uses.size() == profile_.counts.size(), "{} counts for {}", uses.size(), profile_.counts.size());
  if (tokens == 0) return;
  for (std::size_t index = 0; index < uses.size(); ++index) profile_.counts[index] += uses[index];
  profile_.tokens += tokens;
  changed_ = true;
  if (profile_.tokens <= kTokensMax) return;
  for (uint64_t& count : profile_.counts) count /= 2;
  profile_.tokens /= 2;
}

void LearnedProfile::keep_topics(std::span<const residency::Topic> topics) {
  profile_.topics.assign(topics.begin(), topics.end());
}

std::vector<float> LearnedProfile::shares() const {
  if (profile_.tokens == 0) return {};
  return profile_.shares();
}

Status LearnedProfile::save(const std::string& path) {
  TRY_OK(residency::write_profile(profile_, path));
  changed_ = false;
  return {};
}

}  // namespace strata::cache_manager
