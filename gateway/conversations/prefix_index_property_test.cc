// The index against the obvious model: a list of states that is searched from end to end. Random operations
// over few tokens, so that prefixes are shared, split and merged all the time; every answer must be the
// model's, and when the last state has gone nothing may be left.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "gateway/conversations/prefix_index.h"

namespace strata::gateway {
namespace {

constexpr uint32_t kReuseMin = 3;

struct ModelState {
  StateInfo info;
  std::vector<int32_t> tokens;
};

uint32_t common(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

class Model {
 public:
  void add(const IndexEntry& entry) {
    states_[entry.info.id] = {.info = entry.info, .tokens = {entry.tokens.begin(), entry.tokens.end()}};
  }
  void remove(const SnapshotId& id, Removal why) {
    const auto found = states_.find(id);
    if (found == states_.end()) return;
    const auto& [info, tokens] = found->second;
    if (why == Removal::kEvicted) {
      evicted_.emplace(info.owner, info.identity,
                       std::vector<int32_t>(tokens.begin(), tokens.begin() + info.position));
    }
    states_.erase(found);
  }
  void replace(Holder holder, std::span<const IndexEntry> entries) {
    std::vector<SnapshotId> gone;
    for (const auto& [id, state] : states_) {
      if (holder_of(state.info.source) == holder) gone.push_back(id);
    }
    for (const auto& id : gone) remove(id, Removal::kEvicted);
    for (const auto& entry : entries) add(entry);
  }
  std::map<SnapshotId, ModelState>& states() { return states_; }

  // Every distinct prefix in sight of somebody is one stored token.
  std::size_t stored_tokens() const {
    std::set<std::tuple<NamespaceId, IndexIdentity, std::vector<int32_t>>> prefixes;
    for (const auto& [id, state] : states_) {
      for (std::size_t size = 1; size <= state.tokens.size(); ++size) {
        prefixes.emplace(state.info.owner, state.info.identity,
                         std::vector<int32_t>(state.tokens.begin(), state.tokens.begin() + size));
      }
    }
    return prefixes.size();
  }

  PrefixMatch find(std::span<const int32_t> tokens, const NamespaceId& owner,
                   const IndexIdentity& identity) const {
    const auto size = static_cast<uint32_t>(tokens.size());
    PrefixMatch match;
    Other other;
    bool any = false;
    std::map<NamespaceId, Known> known;
    for (const auto& [id, state] : states_) {
      if (state.info.owner != owner && state.info.owner != shared_namespace()) continue;
      const uint32_t same = common(tokens, state.tokens);
      const bool usable = same >= state.info.position && state.info.position < size;
      if (state.info.identity != identity) {
        if (usable && state.info.position >= kReuseMin) other.see(state.info, identity);
        continue;
      }
      known[state.info.owner].see(same, state.tokens.size() > same);
      any |= usable;
      if (!usable || state.info.position < kReuseMin) continue;
      if (!match.state || rank(state.info) < rank(*match.state)) match.state = state.info;
    }
    Known widest = known[owner];
    if (known[shared_namespace()].tokens > widest.tokens) widest = known[shared_namespace()];
    match.known_tokens = widest.tokens;
    match.why = why(tokens, owner, identity, match, widest, other, any);
    return match;
  }

 private:
  struct Known {
    uint32_t tokens = 0;
    bool continues = false;
    void see(uint32_t same, bool more) {
      if (same > tokens) *this = {.tokens = same, .continues = more};
      if (same == tokens) continues |= more;
    }
  };
  struct Other {
    uint32_t position = 0;
    bool same_model = false;
    void see(const StateInfo& info, const IndexIdentity& wanted) {
      const bool model = info.identity.model == wanted.model;
      if (info.position > position) *this = {.position = info.position, .same_model = model};
      if (info.position == position) ambiguous |= model != same_model;
    }
    bool ambiguous = false;  // both kinds at one position: either answer is right
  };
  static std::tuple<uint32_t, Source, uint64_t, SnapshotId> rank(const StateInfo& info) {
    return {UINT32_MAX - info.position, info.source, info.cost_us, info.id};
  }

  WhyNotMore why(std::span<const int32_t> tokens, const NamespaceId& owner, const IndexIdentity& identity,
                 const PrefixMatch& match, const Known& known, const Other& other, bool any) const {
    const auto size = static_cast<uint32_t>(tokens.size());
    const uint32_t reused = match.reused_tokens();
    if (size < kReuseMin + 1) return {.cause = MissCause::kTooSmall};
    if (reused == size - 1) return {.cause = MissCause::kNone};
    uint32_t gone = 0;
    for (const auto& [space, made, prefix] : evicted_) {
      if ((space != owner && space != shared_namespace()) || made != identity) continue;
      if (prefix.size() < size && prefix.size() >= kReuseMin && common(tokens, prefix) == prefix.size()) {
        gone = std::max(gone, static_cast<uint32_t>(prefix.size()));
      }
    }
    if (gone > std::max(reused, other.position)) return {.cause = MissCause::kEvicted, .at_token = gone};
    if (other.position > reused) {
      return {.cause = other.ambiguous    ? MissCause::kError
                       : other.same_model ? MissCause::kOptionsChanged
                                          : MissCause::kIdentity,
              .at_token = other.position};
    }
    const auto at = [&](MissCause cause) { return WhyNotMore{.cause = cause, .at_token = known.tokens}; };
    if (known.tokens == reused) return at(MissCause::kNew);
    if (known.tokens < kReuseMin) return at(any ? MissCause::kTooSmall : MissCause::kNew);
    if (known.tokens == size || !known.continues) return at(MissCause::kNoCheckpoint);
    return at(MissCause::kDiverged);
  }

  std::map<SnapshotId, ModelState> states_;
  std::set<std::tuple<NamespaceId, IndexIdentity, std::vector<int32_t>>> evicted_;
};

class PrefixIndexPropertyTest : public testing::TestWithParam<uint32_t> {
 protected:
  PrefixIndexPropertyTest() {
    EXPECT_TRUE(index_.replace(Holder::kEngine, instances_[0], {}).ok());
    EXPECT_TRUE(index_.replace(Holder::kStore, instances_[1], {}).ok());
  }

  uint32_t draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  // Often the continuation of something that is known.
  std::vector<int32_t> draw_tokens() {
    std::vector<int32_t> tokens;
    if (!model_.states().empty() && draw(4) != 0) {
      tokens = std::next(model_.states().begin(), draw(static_cast<uint32_t>(model_.states().size())))
                   ->second.tokens;
      tokens.resize(draw(static_cast<uint32_t>(tokens.size()) + 1));
    }
    for (uint32_t more = draw(9); more > 0; --more) tokens.push_back(static_cast<int32_t>(draw(3)));
    return tokens;
  }
  NamespaceId draw_owner() {
    return draw(4) == 0 ? shared_namespace() : NamespaceId{.high = 0, .low = draw(3)};
  }
  IndexIdentity draw_identity() {
    snapshot::StateIdentity identity;
    identity.model_fingerprint = draw(8) == 0 ? "other" : "usual";
    identity.options = draw(5) == 0 ? "other" : "usual";
    return index_identity(identity);
  }

  IndexEntry draw_entry(std::vector<int32_t>& tokens, Holder holder) {
    tokens = draw_tokens();
    if (tokens.empty()) tokens.push_back(1);
    IndexEntry entry{.info = {.id = {.high = 0, .low = ++last_id_},
                              .source = holder == Holder::kStore ? static_cast<Source>(3 + draw(2))
                                                                 : static_cast<Source>(draw(3)),
                              .owner = draw_owner(),
                              .identity = draw_identity(),
                              .position = static_cast<uint32_t>(tokens.size()),
                              .cost_us = draw(3)},
                     .tokens = tokens};
    if (entry.info.owner != shared_namespace() && draw(3) == 0)
      entry.info.position -= draw(entry.info.position);
    return entry;
  }

  void step() {
    const auto holder = static_cast<Holder>(draw(2));
    const uint32_t what = draw(100);
    if (what < 50 || model_.states().empty()) {
      std::vector<int32_t> tokens;
      const IndexEntry entry = draw_entry(tokens, holder);
      ASSERT_TRUE(index_.add(instances_[static_cast<std::size_t>(holder)], entry).ok());
      model_.add(entry);
    } else if (what < 97) {
      auto& [id, state] =
          *std::next(model_.states().begin(), draw(static_cast<uint32_t>(model_.states().size())));
      if (what < 60) {
        const uint32_t first = holder_of(state.info.source) == Holder::kStore ? 3 : 0;
        state.info.source = static_cast<Source>(first + draw(first == 3 ? 2 : 3));
        state.info.cost_us = draw(3);
        ASSERT_TRUE(index_.move(id, state.info.source, state.info.cost_us).ok());
      } else {
        const Removal why = draw(2) == 0 ? Removal::kEvicted : Removal::kConsumed;
        const SnapshotId gone = id;
        ASSERT_TRUE(index_.remove(gone, why).ok());
        model_.remove(gone, why);
      }
    } else {
      std::vector<std::vector<int32_t>> tokens(draw(8));
      std::vector<IndexEntry> entries;
      for (auto& one : tokens) entries.push_back(draw_entry(one, holder));
      ASSERT_TRUE(index_.replace(holder, ++instances_[static_cast<std::size_t>(holder)], entries).ok());
      model_.replace(holder, entries);
    }
  }

  void compare() {
    const std::vector<int32_t> tokens = draw_tokens();
    const NamespaceId owner = draw_owner();
    const IndexIdentity identity = draw_identity();
    const PrefixMatch got = index_.find(tokens, owner, identity);
    const PrefixMatch want = model_.find(tokens, owner, identity);
    ASSERT_EQ(got.state.has_value(), want.state.has_value());
    if (got.state) {
      EXPECT_EQ(got.state->position, want.state->position);
      EXPECT_EQ(got.state->id, want.state->id);
      EXPECT_EQ(got.state->source, want.state->source);
    }
    EXPECT_EQ(got.known_tokens, want.known_tokens);
    if (want.why.cause != MissCause::kError) {
      EXPECT_EQ(miss_cause_name(got.why.cause), miss_cause_name(want.why.cause));
    }
    EXPECT_EQ(got.why.at_token, want.why.at_token);
    seen_.insert(got.why.cause);
    if (got.why.cause == MissCause::kDiverged) {
      ASSERT_TRUE(got.why.entry);
      const ModelState& named = model_.states().at(*got.why.entry);
      EXPECT_EQ(named.info.identity, identity);
      EXPECT_TRUE(named.info.owner == owner || named.info.owner == shared_namespace());
      EXPECT_EQ(common(tokens, named.tokens), got.why.at_token);
      EXPECT_GT(named.tokens.size(), got.why.at_token);
    }
  }

  std::mt19937 random_{GetParam()};
  PrefixIndex index_{{.reuse_tokens_min = kReuseMin, .evicted_max = 1'000'000}};
  Model model_;
  std::array<uint64_t, 2> instances_ = {1, 1};
  uint64_t last_id_ = 0;
  std::set<MissCause> seen_;
};

TEST_P(PrefixIndexPropertyTest, AnswersAsTheModelAndKeepsNothingTooMuch) {
  SCOPED_TRACE(testing::Message() << "seed " << GetParam());
  for (int round = 0; round < 1500 && !HasFailure(); ++round) {
    step();
    for (int i = 0; i < 4; ++i) compare();
    if (round % 50 != 0) continue;
    const IndexStats stats = index_.stats();
    EXPECT_EQ(stats.states(), model_.states().size());
    EXPECT_EQ(stats.tokens, model_.stored_tokens());
    EXPECT_LE(stats.nodes, 4 * model_.states().size());
    for (const auto& [id, state] : model_.states()) {
      const auto prefix = std::span(state.tokens).first(state.info.position);
      EXPECT_TRUE(std::ranges::equal(index_.tokens(id), prefix));
    }
  }
  EXPECT_EQ(seen_.size(), 8u) << "every cause but kError, which the index never gives";
  while (!model_.states().empty()) {
    const SnapshotId id = model_.states().begin()->first;
    ASSERT_TRUE(index_.remove(id, Removal::kConsumed).ok());
    model_.remove(id, Removal::kConsumed);
  }
  EXPECT_EQ(index_.stats().states(), 0u);
  EXPECT_EQ(index_.stats().tokens, 0u);
  EXPECT_EQ(index_.stats().nodes, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PrefixIndexPropertyTest, testing::Range(1U, 13U));

}  // namespace
}  // namespace strata::gateway
