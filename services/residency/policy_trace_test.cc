// Recorded routing of the demo model (models/README.md, "traces/routing.bin") replayed against each policy.
// The printed hit rates are what the constants of the policies were chosen by.

#include <gtest/gtest.h>

#include "services/residency/slot_world.h"
#include "services/residency/trace.h"

namespace strata::residency {
namespace {

using Trace = RoutingTrace;
using Conversation = RoutingTrace::Conversation;

Trace read_trace() {
  auto trace = read_routing_trace(std::string(STRATA_SOURCE_DIR) + "/models/traces/routing.bin");
  EXPECT_TRUE(trace) << trace.error().message();
  return std::move(*trace);
}

// Calls visit(layer, expert) for each use of a generated token, and end() after each such token.
template <class Visit, class End>
void for_each_decoded(const Trace& trace, const Conversation& conversation, uint32_t layers, Visit visit,
                      End end) {
  for (std::size_t token = 0; token < conversation.roles.size(); ++token) {
    if (conversation.roles[token] != TokenRole::kGenerated) continue;
    for (uint32_t layer = 0; layer < layers; ++layer) {
      for (uint32_t k = 0; k < trace.used; ++k) {
        visit(layer, conversation.picks[(token * trace.layers + layer) * trace.used + k]);
      }
    }
    end();
  }
}

struct Tally {
  uint64_t hits = 0;
  uint64_t uses = 0;
  uint64_t exchanges = 0;
  double rate() const { return static_cast<double>(hits) / static_cast<double>(uses); }
};

// Usage is looked at every kWindowTokens; what was begun then has landed at the next look.
constexpr uint32_t kWindowTokens = 4;
constexpr uint32_t kExchangesInFlight = 4;

Tally replay(const Trace& trace, const Conversation& conversation, std::string_view name,
             const PolicyOptions& options) {
  auto policy = std::move(*make_policy(name, options));
  const ModelShape shape = options.shape;
  SlotWorld world(shape, options.slots);
  world.begin(policy->propose(world.slots(), options.slots), options.slots);  // filled before the first token
  world.land_all();
  Tally tally;
  std::vector<uint32_t> uses(std::size_t{shape.layers} * shape.experts);
  uint32_t tokens = 0;
  auto use = [&](uint32_t layer, uint32_t expert) {
    tally.hits += world.resident({layer, expert});
    ++tally.uses;
    ++uses[std::size_t{layer} * shape.experts + expert];
  };
  auto end_token = [&] {
    if (++tokens < kWindowTokens) return;
    policy->observe({.decode_uses = uses, .decode_tokens = tokens, .prefill_uses = {}, .prefill_tokens = 0});
    std::fill(uses.begin(), uses.end(), 0);
    tokens = 0;
    world.land_all();
    world.begin(policy->propose(world.slots(), kExchangesInFlight), kExchangesInFlight);
  };
  for_each_decoded(trace, conversation, shape.layers, use, end_token);
  tally.exchanges = world.exchanges();
  return tally;
}

// What all the other conversations used, as shares within each layer.
std::vector<float> profile_without(const Trace& trace, std::size_t left_out, ModelShape shape) {
  std::vector<float> shares(std::size_t{shape.layers} * shape.experts);
  double tokens = 0;
  for (std::size_t i = 0; i < trace.conversations.size(); ++i) {
    if (i == left_out) continue;
    for_each_decoded(
        trace, trace.conversations[i], shape.layers,
        [&](uint32_t layer, uint32_t expert) { shares[std::size_t{layer} * shape.experts + expert] += 1; },
        [&] { tokens += 1; });
  }
  for (float& share : shares) share /= static_cast<float>(tokens * trace.used);
  return shares;
}

struct Average {
  double rate = 0;
  uint64_t exchanges = 0;
};

Average average(const Trace& trace, std::string_view name, uint32_t slots, bool with_profile) {
  const ModelShape trunk{trace.layers - 1, trace.experts};
  Average sum;
  for (std::size_t i = 0; i < trace.conversations.size(); ++i) {
    PolicyOptions options{.shape = trunk, .slots = slots};
    if (with_profile) options.profile = profile_without(trace, i, trunk);
    const Tally tally = replay(trace, trace.conversations[i], name, options);
    sum.rate += tally.rate() / static_cast<double>(trace.conversations.size());
    sum.exchanges += tally.exchanges;
  }
  fmt::print("{:9} {:3} slots, {:10} hit rate {:.3f}, {:5} exchanges\n", name, slots,
             with_profile ? "profile:" : "no profile:", sum.rate, sum.exchanges);
  return sum;
}

TEST(PolicyTraceTest, FollowingTheConversationBeatsAFixedChoice) {
  const Trace trace = read_trace();
  const uint32_t experts = (trace.layers - 1) * trace.experts;
  for (const uint32_t slots : {experts / 8, experts / 4, experts / 2}) {
    for (const bool with_profile : {false, true}) {
      const Average fixed = average(trace, "static", slots, with_profile);
      const Average lru = average(trace, "lru", slots, with_profile);
      const Average lfu = average(trace, "lfu-decay", slots, with_profile);
      EXPECT_GT(lfu.rate, fixed.rate + 0.03);
      EXPECT_GT(lfu.rate, lru.rate);
      EXPECT_LT(lfu.exchanges, lru.exchanges);
    }
  }
}

TEST(PolicyTraceTest, AProfileIsABetterStartThanNone) {
  const Trace trace = read_trace();
  const uint32_t slots = (trace.layers - 1) * trace.experts / 4;
  for (const char* name : {"static", "lfu-decay"}) {
    EXPECT_GT(average(trace, name, slots, true).rate, average(trace, name, slots, false).rate) << name;
  }
}

}  // namespace
}  // namespace strata::residency
