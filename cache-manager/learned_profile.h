#pragma once
// The routing profile that is learned while answers are computed. It begins with what is known already and
// forgets slowly: when its tokens pass a bound everything is halved, so that what was learned lately counts
// most.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/residency/profile.h"

namespace strata::cache_manager {

class LearnedProfile {
 public:
  // A profile recorded beforehand is worth at most this many tokens as a beginning, so that a different use
  // outweighs it within an hour or so.
  static constexpr uint64_t kPriorTokensMax = 8192;
  static constexpr uint64_t kTokensMax = uint64_t{1} << 20;

  LearnedProfile(std::string model_fingerprint, uint32_t layers, uint32_t experts);

  // Begins with a profile of the same model and shape: kFailedPrecondition otherwise. Saved by an earlier
  // run: taken as it is.
  Status resume(const residency::Profile& learned);
  Status begin_with(const residency::Profile& recorded);

  void add(std::span<const uint32_t> uses, uint64_t tokens);  // (layers, experts)
  // What a policy has learned of topics, in the place of what was known.
  void keep_topics(std::span<const residency::Topic> topics);
  // (layers, experts) share of the layer's uses; empty when nothing is known.
  std::vector<float> shares() const;

  const residency::Profile& profile() const { return profile_; }
  bool changed() const { return changed_; }  // since the last save
  Status save(const std::string& path);      // atomically

 private:
  Status check_shape(const residency::Profile& other) const;

  residency::Profile profile_;
  bool changed_ = false;
};

}  // namespace strata::cache_manager
