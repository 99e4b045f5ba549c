// Recorded routing of the demo model (models/README.md, "traces/routing.bin") replayed against each policy.
// The printed hit rates are what the constants of the policies were chosen by.

#include <gtest/gtest.h>

#include <cstring>

#include "services/residency/slot_world.h"
#include "tests/support/test_data.h"

namespace strata::residency {
namespace {

struct Conversation {
  std::vector<uint8_t> roles;    // (tokens)
  std::vector<uint8_t> experts;  // (tokens, layers, experts per token)
};

struct Trace {
  ModelShape shape;        // with the draft layer, which is the last one
  uint32_t per_token = 0;  // experts per token and layer
  std::vector<Conversation> conversations;
};

constexpr uint8_t kGenerated = 2;

class Bytes {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string_view take(std::size_t size) {
    const std::string_view taken = std::string_view(bytes_).substr(at_, size);
    at_ += size;
    return taken;
  }
  uint32_t u32() {
    uint32_t value = 0;
    std::memcpy(&value, take(4).data(), 4);
    return value;
  }
  std::vector<uint8_t> u8s(std::size_t count) {
    const std::string_view taken = take(count);
    return {taken.begin(), taken.end()};
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

Trace read_trace() {
  Bytes bytes(tests::read_text(std::string(STRATA_SOURCE_DIR) + "/models/traces/routing.bin"));
  EXPECT_EQ(bytes.take(8), "STRTRC01");
  Trace trace;
  trace.conversations.resize(bytes.u32());
  trace.shape.layers = bytes.u32();
  trace.shape.experts = bytes.u32();
  trace.per_token = bytes.u32();
  for (Conversation& conversation : trace.conversations) {
    const uint32_t tokens = bytes.u32();
    bytes.take(std::size_t{tokens} * 4);  // token ids
    conversation.roles = bytes.u8s(tokens);
    bytes.take(tokens);  // domains
    conversation.experts = bytes.u8s(std::size_t{tokens} * trace.shape.layers * trace.per_token);
  }
  EXPECT_TRUE(bytes.at_end());
  return trace;
}

// Calls visit(layer, expert) for each use of a generated token, and end() after each such token.
template <class Visit, class End>
void for_each_decoded(const Trace& trace, const Conversation& conversation, uint32_t layers, Visit visit,
                      End end) {
  for (std::size_t token = 0; token < conversation.roles.size(); ++token) {
    if (conversation.roles[token] != kGenerated) continue;
    for (uint32_t layer = 0; layer < layers; ++layer) {
      for (uint32_t k = 0; k < trace.per_token; ++k) {
        visit(layer, conversation.experts[(token * trace.shape.layers + layer) * trace.per_token + k]);
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
    policy->observe(uses, tokens);
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
  for (float& share : shares) share /= static_cast<float>(tokens * trace.per_token);
  return shares;
}

struct Average {
  double rate = 0;
  uint64_t exchanges = 0;
};

Average average(const Trace& trace, std::string_view name, uint32_t slots, bool with_profile) {
  const ModelShape trunk{trace.shape.layers - 1, trace.shape.experts};
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
  const uint32_t experts = (trace.shape.layers - 1) * trace.shape.experts;
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
  const uint32_t slots = (trace.shape.layers - 1) * trace.shape.experts / 4;
  for (const char* name : {"static", "lfu-decay"}) {
    EXPECT_GT(average(trace, name, slots, true).rate, average(trace, name, slots, false).rate) << name;
  }
}

}  // namespace
}  // namespace strata::residency
