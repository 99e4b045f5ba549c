#pragma once
// The routed pairs of one layer sorted by expert, so that an expert's weights are read once for all of its
// tokens.

#include <cstdint>
#include <span>
#include <vector>

#include "services/model/moe_executor.h"

namespace strata::gpu_worker {

// One expert with its pairs, as a range of ExpertGroups::pairs() and tokens().
struct ExpertGroup {
  uint16_t expert = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t size() const { return end - begin; }
};

class ExpertGroups {
 public:
  static constexpr uint64_t kPairBytes = 2 * sizeof(uint32_t);
  // All memory is taken here.
  ExpertGroups(uint32_t pairs_max, uint32_t experts_max);
  void build(const model::RoutedLayer& routed);

  std::span<const ExpertGroup> groups() const { return groups_; }  // ascending expert; none is empty
  std::span<const uint32_t> pairs() const { return {pairs_.data(), pair_count_}; }  // token * top_k + k
  std::span<const uint32_t> tokens() const {
    return {tokens_.data(), pair_count_};
  }  // ascending within a group

 private:
  std::vector<ExpertGroup> groups_;
  std::vector<uint32_t> pairs_;
  std::vector<uint32_t> tokens_;
  std::vector<uint32_t> next_;  // (experts) where the next pair of an expert goes
  uint32_t pair_count_ = 0;
};

}  // namespace strata::gpu_worker
