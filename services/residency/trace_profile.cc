#include "services/residency/trace_profile.h"

#include <algorithm>

namespace strata::residency {
namespace {

// Learns a conversation's topics. Chunks do not reach over the end of a conversation.
void learn_topics(const RoutingTrace& trace, const RoutingTrace::Conversation& conversation,
                  TopicLearner& learner) {
  const std::size_t per_token = std::size_t{trace.layers} * trace.used;
  const std::size_t tokens = conversation.tokens.size();
  std::vector<uint32_t> uses(std::size_t{trace.layers} * trace.experts);
  std::size_t in_chunk = 0;
  for (std::size_t token = 0; token < tokens; ++token) {
    for (std::size_t use = 0; use < per_token; ++use) {
      const std::size_t layer = use / trace.used;
      ++uses[layer * trace.experts + conversation.picks[token * per_token + use]];
    }
    if (++in_chunk < TopicLearner::kChunkTokens) continue;
    learner.add(uses, in_chunk);
    std::ranges::fill(uses, 0);
    in_chunk = 0;
  }
}

}  // namespace

Profile profile_of(const RoutingTrace& trace, std::optional<std::size_t> without) {
  Profile profile;
  profile.layers = trace.layers;
  profile.experts = trace.experts;
  profile.counts.resize(std::size_t{trace.layers} * trace.experts);
  TopicLearner learner(profile.counts.size(), {});
  for (std::size_t i = 0; i < trace.conversations.size(); ++i) {
    if (i == without) continue;
    const RoutingTrace::Conversation& conversation = trace.conversations[i];
    for (std::size_t token = 0; token < conversation.tokens.size(); ++token) {
      if (conversation.roles[token] != TokenRole::kGenerated) continue;
      ++profile.tokens;
      for (uint32_t layer = 0; layer < trace.layers; ++layer) {
        for (const uint16_t expert : trace.picks(conversation, token, layer))
          ++profile.counts[std::size_t{layer} * trace.experts + expert];
      }
    }
    learn_topics(trace, conversation, learner);
  }
  profile.topics = learner.topics();
  return profile;
}

RoutingTrace first_layers(const RoutingTrace& trace, uint32_t layers) {
  RoutingTrace cut = trace;
  cut.layers = std::min(layers, trace.layers);
  const std::size_t from = std::size_t{trace.layers} * trace.used, to = std::size_t{cut.layers} * trace.used;
  for (RoutingTrace::Conversation& conversation : cut.conversations) {
    std::vector<uint16_t> picks;
    picks.reserve(conversation.tokens.size() * to);
    for (std::size_t token = 0; token < conversation.tokens.size(); ++token) {
      const auto begin = conversation.picks.begin() + static_cast<std::ptrdiff_t>(token * from);
      picks.insert(picks.end(), begin, begin + static_cast<std::ptrdiff_t>(to));
    }
    conversation.picks = std::move(picks);
  }
  return cut;
}

}  // namespace strata::residency
