#pragma once
// A routing profile: how often each expert of each layer was used, over all and by topics. Little-endian
// file, written atomically, with checksum and model fingerprint (format: docs/profile-format.md).

#include <cstdint>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/residency/topics.h"

namespace strata::residency {

struct Profile {
  std::string model_fingerprint;
  uint32_t layers = 0;
  uint32_t experts = 0;
  uint64_t tokens = 0;             // decode tokens it was learned from
  std::vector<uint64_t> counts;    // (layers, experts)
  std::vector<Topic> topics = {};  // at most TopicLearner::kTopicsMax; decode and prefill tokens

  // (layers, experts) share of the layer's uses.
  std::vector<float> shares() const;
};

// kNotFound; kDataLoss (not a profile, damaged: says what); with `expected_fingerprint` not empty:
// kFailedPrecondition for another model.
Result<Profile> read_profile(const std::string& path, const std::string& expected_fingerprint = "");
Status write_profile(const Profile& profile, const std::string& path);

}  // namespace strata::residency
