#include "services/simulation/bounds.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "services/residency/worth_policy.h"

namespace strata::simulation {
namespace {

using residency::RoutingTrace;

// Experts that the generated tokens use, as indices over all layers, (generated tokens, layers * used).
class DecodeUses {
 public:
  DecodeUses(const RoutingTrace& trace, const Conversation& conversation)
      : per_token_(std::size_t{trace.layers} * trace.used) {
    for (std::size_t token = 0; token < conversation.roles.size(); ++token) {
      if (conversation.roles[token] != residency::TokenRole::kGenerated) continue;
      for (uint32_t layer = 0; layer < trace.layers; ++layer) {
        for (const uint16_t expert : trace.picks(conversation, token, layer))
          uses_.push_back(layer * trace.experts + expert);
      }
    }
  }
  std::size_t tokens() const { return uses_.size() / per_token_; }
  std::span<const uint32_t> all() const { return uses_; }
  std::span<const uint32_t> of(std::size_t token) const {
    return std::span(uses_).subspan(token * per_token_, per_token_);
  }

 private:
  std::size_t per_token_;
  std::vector<uint32_t> uses_;
};

double rate(uint64_t hits, const DecodeUses& uses) {
  return uses.all().empty() ? 0 : static_cast<double>(hits) / static_cast<double>(uses.all().size());
}

// Holds what the coming tokens use most. Every look but those of prompts is behind generated tokens.
class ForesightPolicy final : public residency::WorthPolicy {
 public:
  ForesightPolicy(const residency::PolicyOptions& options, const DecodeUses& uses)
      : WorthPolicy(options, {}), uses_(uses) {
    see_up_to(kForesightTokens);
  }
  std::string_view name() const override { return "foresight"; }

 private:
  void learn(const residency::Usage& usage) override {
    for (uint64_t i = 0; i < usage.decode_tokens; ++i, ++now_) {
      for (const uint32_t expert : uses_.of(now_)) worth_[expert] -= 1;
    }
    see_up_to(now_ + kForesightTokens);
  }

  void see_up_to(std::size_t end) {
    for (; seen_ < std::min(end, uses_.tokens()); ++seen_) {
      for (const uint32_t expert : uses_.of(seen_)) worth_[expert] += 1;
    }
  }

  const DecodeUses& uses_;
  std::size_t now_ = 0, seen_ = 0;  // tokens
};

}  // namespace

double oracle_hit_rate(const RoutingTrace& trace, const Conversation& conversation, uint32_t slots) {
  const DecodeUses uses(trace, conversation);
  std::vector<uint64_t> counts(std::size_t{trace.layers} * trace.experts);
  for (const uint32_t expert : uses.all()) ++counts[expert];
  std::ranges::sort(counts, std::greater());
  const std::size_t held = std::min<std::size_t>(slots, counts.size());
  return rate(
      std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(held), uint64_t{0}), uses);
}

double belady_hit_rate(const RoutingTrace& trace, const Conversation& conversation, uint32_t slots) {
  const DecodeUses uses(trace, conversation);
  const auto tokens = static_cast<uint32_t>(uses.tokens());
  const std::size_t experts = std::size_t{trace.layers} * trace.experts;
  // Token of the next use, for each use and for the first of each expert; `tokens`: never.
  std::vector<uint32_t> next(experts, tokens), next_of_use(uses.all().size());
  for (std::size_t use = uses.all().size(); use-- > 0;) {
    const uint32_t expert = uses.all()[use];
    next_of_use[use] = std::exchange(next[expert], static_cast<uint32_t>(use / uses.of(0).size()));
  }
  using Held = std::pair<uint32_t, uint32_t>;  // next use, expert: the last of the set goes first
  std::set<Held> held;
  const auto keep = [&](uint32_t expert) {
    held.emplace(next[expert], expert);
    if (held.size() > slots) held.erase(std::prev(held.end()));
  };
  for (uint32_t expert = 0; expert < experts; ++expert) keep(expert);
  uint64_t hits = 0;
  std::size_t use = 0;
  for (uint32_t token = 0; token < tokens; ++token) {
    // All uses of a token happen at once: first all are looked up, then the set changes.
    for (const uint32_t expert : uses.of(token)) hits += held.erase({next[expert], expert});
    for (const uint32_t expert : uses.of(token)) {
      next[expert] = next_of_use[use++];
      keep(expert);
    }
  }
  return rate(hits, uses);
}

double foresight_hit_rate(const RoutingTrace& trace, const Conversation& conversation,
                          const ReplayOptions& options) {
  const DecodeUses uses(trace, conversation);
  residency::PolicyOptions policy{.shape = {trace.layers, trace.experts}, .slots = options.slots};
  Replay replay(trace, std::make_unique<ForesightPolicy>(policy, uses), options);
  replay.run(conversation);
  return replay.result().decode_rate();
}

}  // namespace strata::simulation
