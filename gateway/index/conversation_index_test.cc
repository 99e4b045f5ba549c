// The index and its two feeds on virtual time: what is found while keepers come, list, change, break and go.

#include "gateway/index/conversation_index.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "gateway/testing/scripted_feed.h"
#include "services/actor/actor_system.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using testing::ScriptedFeed;

constexpr IndexIdentity kIdentity{.model = {.high = 1, .low = 1}, .all = {.high = 2, .low = 2}};
constexpr IndexIdentity kOtherIdentity{.model = {.high = 1, .low = 1}, .all = {.high = 3, .low = 3}};
const NamespaceId kAlice = key_namespace("alice");

std::vector<int32_t> counting(int32_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

SnapshotId id_of(uint64_t number) { return {.high = 9, .low = number}; }

class ConversationIndexTest : public ::testing::Test {
 protected:
  ConversationIndexTest() {
    index_ =
        std::make_shared<ConversationIndex>(world_.make_executor(), PrefixIndexOptions{},
                                            ConversationIndex::Feeds{&engine_, &store_}, probe_, faults_);
    tell(index_, ConversationIndex::Start{});
    world_.deliver_all();
  }

  static FeedState state(uint64_t number, Source source, int32_t tokens) {
    return {.id = id_of(number), .source = source, .owner = kAlice, .tokens = counting(tokens)};
  }
  void say(ScriptedFeed& feed, FeedEvent event) {
    feed.say(std::move(event));
    world_.deliver_all();
  }
  void list(ScriptedFeed& feed, uint64_t instance, std::vector<FeedState> states,
            std::optional<IndexIdentity> identity = kIdentity) {
    feed.list(instance, identity, std::move(states));
    world_.deliver_all();
  }
  void away(ScriptedFeed& feed, Code code = Code::kUnavailable) {
    say(feed, FeedEnded{Status(code, "gone")});
  }
  // Nothing: the search waits.
  std::optional<PrefixMatch> find(int32_t tokens = 200) {
    auto found = std::make_shared<std::optional<PrefixMatch>>();
    tell(index_, ConversationIndex::Find{.tokens = counting(tokens),
                                         .owner = kAlice,
                                         .reply = [found](const PrefixMatch& match) { *found = match; }});
    world_.deliver_all();
    last_ = found;
    return *found;
  }
  uint32_t reused(int32_t tokens = 200) {
    const auto match = find(tokens);
    EXPECT_TRUE(match) << "the search waits";
    return match ? match->reused_tokens() : UINT32_MAX;
  }
  double value(const std::string& name, const std::string& label) const {
    for (const auto& family : metrics_.collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        for (const auto& one : metric.label) {
          if (one.value == label) return metric.gauge.value + metric.counter.value;
        }
      }
    }
    return -1;
  }

  actor::VirtualWorld world_;
  obs::Metrics metrics_{{}};
  ConversationProbe probe_{metrics_};
  GatewayProbe faults_{metrics_};
  ScriptedFeed engine_, store_;
  std::shared_ptr<ConversationIndex> index_;
  std::shared_ptr<std::optional<PrefixMatch>> last_;
};

TEST_F(ConversationIndexTest, TheBestOfBothKeepersIsFound) {
  list(engine_, 7, {state(1, Source::kLive, 100)});
  list(store_, 8, {state(2, Source::kRam, 150), state(3, Source::kDisk, 120)});
  EXPECT_EQ(reused(200), 150u);
  EXPECT_EQ(reused(140), 120u);
  EXPECT_EQ(reused(110), 100u);
  EXPECT_EQ(reused(90), 0u);
  EXPECT_EQ(value("strata_conv_entries", "vram"), 1);
  EXPECT_EQ(value("strata_conv_entries", "ram"), 1);
  EXPECT_EQ(value("strata_conv_entries", "disk"), 1);
}

TEST_F(ConversationIndexTest, StatesComeGoMoveAndShareTheirTokens) {
  list(engine_, 7, {});
  list(store_, 8, {state(2, Source::kRam, 100)});
  FeedState longer{.id = id_of(3),
                   .source = Source::kRam,
                   .owner = kAlice,
                   .base = id_of(2),
                   .base_tokens = 90,
                   .tokens = counting(70, 90),
                   .generated = {{.begin = 95, .end = 100}}};
  say(store_, std::move(longer));
  EXPECT_EQ(reused(), 160u);
  say(store_, FeedState{.id = id_of(3), .source = Source::kDisk, .owner = kAlice});
  EXPECT_EQ(find()->state->source, Source::kDisk);
  say(store_, FeedRemoved{.id = id_of(3), .why = Removal::kEvicted});
  EXPECT_EQ(find()->reused_tokens(), 100u);
  EXPECT_EQ(find()->why.cause, MissCause::kEvicted);
  EXPECT_EQ(find()->why.at_token, 160u);
  say(store_, FeedRemoved{.id = id_of(99)});  // crossed with something
  EXPECT_EQ(value("strata_protocol_errors_total", "state_feed"), 0);
}

TEST_F(ConversationIndexTest, BeginReplacesWhatTheKeeperHadAndNothingElse) {
  list(engine_, 7, {state(1, Source::kLive, 100)});
  list(store_, 8, {state(2, Source::kRam, 150)});
  list(store_, 9, {state(3, Source::kDisk, 50)});
  EXPECT_EQ(reused(), 100u);
  list(engine_, 10, {});
  EXPECT_EQ(reused(), 50u);
}

TEST_F(ConversationIndexTest, AKeeperThatIsAwayIsNoErrorAndIsAskedAgainLessAndLessOften) {
  away(engine_);
  away(store_, Code::kUnimplemented);
  EXPECT_EQ(reused(), 0u);
  EXPECT_EQ(find()->why.cause, MissCause::kNew);
  EXPECT_EQ(store_.watches, 1u);
  // 100 ms, 200, 400, 800, then every second.
  for (const int pause : {100, 200, 400, 800, 1000, 1000}) {
    const uint32_t before = store_.watches;
    world_.advance(milliseconds(pause - 1));
    EXPECT_EQ(store_.watches, before) << pause;
    world_.advance(milliseconds(1));
    EXPECT_EQ(store_.watches, before + 1) << pause;
    away(store_, Code::kUnimplemented);
  }
  world_.advance(milliseconds(1000));
  list(store_, 8, {state(2, Source::kRam, 150)});
  away(engine_);
  EXPECT_EQ(reused(), 150u);
  EXPECT_EQ(value("strata_protocol_errors_total", "state_feed"), 0);

  away(store_);
  EXPECT_EQ(reused(), 0u) << "nobody could restore it";
  EXPECT_EQ(find()->why.cause, MissCause::kEvicted);
  const uint32_t before = store_.watches;
  world_.advance(milliseconds(100));
  EXPECT_EQ(store_.watches, before + 1) << "the back-off begins anew";
}

TEST_F(ConversationIndexTest, AnEngineThatIsReadyAgainIsAskedAtOnce) {
  away(store_);
  for (int i = 0; i < 6; ++i) {
    away(engine_);
    world_.advance(milliseconds(1000));
  }
  away(engine_);
  const uint32_t before = engine_.watches;
  for (const auto phase : {EngineState::Phase::kUnreachable, EngineState::Phase::kLoading}) {
    tell(index_, EngineState{.phase = phase});
    world_.deliver_all();
    EXPECT_EQ(engine_.watches, before);
  }
  for (int looks = 0; looks < 3; ++looks) {
    tell(index_, EngineState{.phase = EngineState::Phase::kReady});
    world_.deliver_all();
    EXPECT_EQ(engine_.watches, before + 1);
  }
  list(engine_, 7, {state(1, Source::kLive, 100)});
  world_.advance(milliseconds(2000));
  EXPECT_EQ(engine_.watches, before + 1) << "asked twice";
}

TEST_F(ConversationIndexTest, SearchesWaitForAListButNotForEver) {
  list(engine_, 7, {});
  EXPECT_FALSE(find());  // the store has been asked and says nothing yet
  auto first = last_;
  say(store_, FeedBegin{.instance = 8, .identity = kIdentity});
  say(store_, state(1, Source::kRam, 50));
  EXPECT_FALSE(*first);
  say(store_, state(2, Source::kRam, 150));
  say(store_, FeedComplete{});
  ASSERT_TRUE(*first);
  EXPECT_EQ((*first)->reused_tokens(), 150u);

  say(store_, FeedBegin{.instance = 9, .identity = kIdentity});
  say(store_, state(3, Source::kRam, 60));
  EXPECT_FALSE(find());
  first = last_;
  world_.advance(kListingWaitMax - milliseconds(1));
  EXPECT_FALSE(*first);
  world_.advance(milliseconds(1));
  ASSERT_TRUE(*first);
  EXPECT_EQ((*first)->reused_tokens(), 60u);
  EXPECT_EQ(reused(), 60u) << "a keeper that does not answer costs the wait once";

  say(store_, FeedComplete{});
  away(store_);
  world_.advance(kFeedBackoffMin);
  EXPECT_FALSE(find());
  first = last_;
  away(store_);
  EXPECT_TRUE(*first) << "waits for one who is away";
}

TEST_F(ConversationIndexTest, TheEnginesIdentityDecidesWhatFits) {
  list(store_, 8, {state(2, Source::kRam, 150)});
  away(engine_, Code::kUnimplemented);
  EXPECT_EQ(reused(), 150u) << "an engine that says nothing has attached to the store";
  world_.advance(kFeedBackoffMin);
  list(engine_, 7, {}, kOtherIdentity);
  EXPECT_EQ(reused(), 0u);
  EXPECT_EQ(find()->why.cause, MissCause::kOptionsChanged);
  list(store_, 9, {state(3, Source::kRam, 100)}, kOtherIdentity);
  EXPECT_EQ(reused(), 100u);
  away(engine_);
  EXPECT_EQ(reused(), 100u) << "while the engine restarts its identity is the one it had";
}

TEST_F(ConversationIndexTest, StatesOfAStoreThatNoGpuWorkerHasAttachedToAreLeftAlone) {
  away(engine_);
  list(store_, 0, {}, std::nullopt);
  EXPECT_EQ(reused(), 0u);
  list(store_, 8, {state(2, Source::kDisk, 150)}, std::nullopt);
  EXPECT_EQ(reused(), 0u);
  list(store_, 8, {state(2, Source::kDisk, 150)});
  EXPECT_EQ(reused(), 150u);
  list(store_, 0, {}, std::nullopt);
  EXPECT_EQ(reused(), 0u) << "its gpu-worker is gone, and the grant with it";
  EXPECT_EQ(value("strata_protocol_errors_total", "state_feed"), 0);
}

TEST_F(ConversationIndexTest, WhatMakesNoSenseIsCountedAndLeftOut) {
  list(engine_, 7, {});
  list(store_, 8, {state(2, Source::kRam, 100)});
  FeedState orphan{.id = id_of(3), .owner = kAlice, .base = id_of(77), .base_tokens = 20, .tokens = {1}};
  say(store_, orphan);
  FeedState too_long{.id = id_of(4), .owner = kAlice, .base = id_of(2), .base_tokens = 101, .tokens = {1}};
  say(store_, too_long);
  say(store_, FeedState{.id = id_of(5), .owner = kAlice});
  say(store_, FeedState{.id = id_of(2), .source = Source::kLive});
  EXPECT_EQ(value("strata_protocol_errors_total", "state_feed"), 4);
  EXPECT_EQ(reused(), 100u);
  away(store_, Code::kDataLoss);
  EXPECT_EQ(value("strata_protocol_errors_total", "state_feed"), 5);
  EXPECT_EQ(reused(), 0u);
}

}  // namespace
}  // namespace strata::gateway
