#pragma once
// The policy `topic`. Worth of an expert: how many uses a coming token will make of it, estimated as the sum
// of
//   - its uses per token lately, with a short and a long memory: an expert just used is likely to be used
//     again, and the long memory knows what this conversation needs;
//   - its uses per token in the topics that the traffic looks like (topics.h): the probability of each topic
//     by the log likelihood of the last tokens, softened, because the uses of neighbouring tokens and layers
//     are not independent.
// Prompt tokens tell the topic as well as generated ones, but count little in the two memories, and no more
// than a few tokens together: a long prompt does not flush the hot set.
// Topics go on being learned; without any the profile stands in, with less weight.
//
// Work per look: three passes over all experts, and per used expert one over the topics.

#include <cstdint>
#include <memory>

#include "services/residency/policy.h"

namespace strata::residency {

// The constants, chosen on recorded conversations (docs/decisions/010-residency-constants.md). Each is on a
// plateau: half or twice of it costs less than half a point of hit rate.
struct TopicTuning {
  double short_tokens = 6;        // half-life of the short memory; the long one's is options.decay_tokens
  double short_part = 0.3;        // of the estimate by memory; the rest is the long one's
  double topic_tokens = 4;        // half-life of the evidence for a topic
  double evidence = 2.4;          // log odds per token and unit of mean log likelihood of a use
  double profile_weight = 0.2;    // of the profile where there are no topics; these have weight 1
  double prefill_part = 0.1;      // of a generated token, that a prompt token counts in the memories
  double prefill_tokens_max = 4;  // of generated tokens, that a prompt chunk counts at most
  double margin = 0.3;            // an exchange must gain so much, in mean uses of an expert per token
  uint64_t stay_tokens = 2;       // minimum residence time
};

std::unique_ptr<Policy> make_topic_policy(const PolicyOptions& options, const TopicTuning& tuning);

}  // namespace strata::residency
