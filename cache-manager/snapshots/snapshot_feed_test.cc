// What a watcher is told is what is there: an index made of events alone equals the store's own list at every
// quiet moment.

#include <gmock/gmock.h>

#include <map>

#include "cache-manager/snapshots/snapshot_fixture.h"

namespace strata::cache_manager {
namespace {

// A gateway's index, made of events. A fault is kept as text.
class Index {
 public:
  void apply(const FeedEvent& event) {
    const std::lock_guard lock(mutex_);
    if (const auto* begin = std::get_if<FeedBegin>(&event)) {
      states_.clear();
      begins.push_back(*begin);
      complete_ = false;
    } else if (const auto* added = std::get_if<FeedAdded>(&event)) {
      add(*added);
    } else if (const auto* removed = std::get_if<FeedRemoved>(&event)) {
      if (states_.erase(removed->id) == 0) fault_ += "removed what was not there; ";
      causes_[removed->id] = removed->cause;
    } else {
      complete_ = true;
    }
  }
  struct State {
    TestTokens tokens;
    bool in_ram = false, on_disk = false;
    uint32_t tokens_sent = 0;
    bool operator==(const State&) const = default;
  };
  std::map<SnapshotId, State> states() {
    const std::lock_guard lock(mutex_);
    return states_;
  }
  std::string fault() {
    const std::lock_guard lock(mutex_);
    return fault_;
  }
  bool complete() {
    const std::lock_guard lock(mutex_);
    return complete_;
  }
  std::string cause(const SnapshotId& id) {
    const std::lock_guard lock(mutex_);
    return causes_[id];
  }
  std::vector<FeedBegin> begins;  // read it while nothing happens

 private:
  void add(const FeedAdded& added) {
    State& state = states_[added.info.id];
    state.in_ram = added.info.in_ram;
    state.on_disk = added.info.on_disk;
    if (added.tokens.empty()) {
      if (state.tokens.empty()) fault_ += "new without tokens; ";
      return;
    }
    if (!state.tokens.empty()) fault_ += "tokens twice; ";
    if (!added.base.is_zero()) {
      const TestTokens& base = states_[added.base].tokens;
      if (base.size() < added.base_tokens) {
        fault_ += "base is not there; ";
        return;
      }
      state.tokens.assign(base.begin(), base.begin() + added.base_tokens);
    }
    state.tokens.insert(state.tokens.end(), added.tokens.begin(), added.tokens.end());
    state.tokens_sent = static_cast<uint32_t>(added.tokens.size());
  }
  std::mutex mutex_;
  std::map<SnapshotId, State> states_;
  std::map<SnapshotId, std::string> causes_;
  std::string fault_;
  bool complete_ = false;
};

class SnapshotFeedTest : public SnapshotFixture {
 protected:
  std::shared_ptr<Index> watch() {
    auto index = std::make_shared<Index>();
    actor::tell(actor_, SnapshotActor::Watch{[index](const FeedEvent& event) {
                  index->apply(event);
                  return true;
                }});
    return index;
  }
  // "": the index is what the actor lists.
  std::string difference(Index& index) {
    auto told = index.states();
    std::string what = index.fault();
    for (const SnapshotInfo& info : list().snapshots) {
      const auto state = told.extract(info.id);
      const auto now = ask<Result<SnapshotListing>>(SnapshotActor::List{.id = info.id, .reply = {}});
      if (!state) {
        what += "not told of one; ";
      } else if (state.mapped().in_ram != info.in_ram || state.mapped().on_disk != info.on_disk || !now ||
                 state.mapped().tokens != now->tokens.tokens) {
        what += "told otherwise; ";
      }
    }
    return told.empty() ? what : what + "told of more; ";
  }
};

TEST_F(SnapshotFeedTest, BeginsListsCompletesAndGoesOn) {
  start();
  const auto before = watch();
  ASSERT_TRUE(eventually([&] { return before->complete(); }));
  ASSERT_EQ(before->begins.size(), 1u);
  EXPECT_TRUE(before->begins[0].identity.empty()) << "nobody has attached";
  attach();
  const SnapshotId id = parked(test_tokens(8));
  EXPECT_EQ(before->begins.size(), 2u);
  EXPECT_EQ(before->begins[1].identity, snapshot::serialize(snapshot::test_identity()));
  const auto after = watch();
  EXPECT_EQ(difference(*before), "");
  EXPECT_EQ(difference(*after), "");
  EXPECT_TRUE(ask<Result<uint32_t>>(SnapshotActor::Drop{.id = id, .reply = {}}));
  EXPECT_EQ(difference(*before), "");
  EXPECT_EQ(after->cause(id), "dropped");
}

TEST_F(SnapshotFeedTest, AGrowingConversationDoesNotRepeatItsTokens) {
  start();
  attach();
  const auto live = watch();
  std::vector<SnapshotId> ids;
  for (uint32_t length : {5, 9, 14}) ids.push_back(parked(test_tokens(length)));
  const auto late = watch();
  for (const auto& index : {live, late}) {
    EXPECT_EQ(difference(*index), "");
    auto states = index->states();
    EXPECT_EQ(states[ids[0]].tokens_sent, 5u);
    EXPECT_EQ(states[ids[1]].tokens_sent, 4u);
    EXPECT_EQ(states[ids[2]].tokens_sent, 5u);
  }
}

TEST_F(SnapshotFeedTest, FollowsBothTiersThroughAnything) {
  use_disk(40 * kExtentUnitBytes);
  budget_of_states(4);
  start();
  attach();
  const auto index = watch();
  std::mt19937 random(7);
  for (int step = 0; step < 200; ++step) {
    const TestTokens tokens = test_tokens(1 + random() % 12, 1000 * static_cast<int32_t>(random() % 4));
    const auto id = park(tokens);
    const auto all = list().snapshots;
    if (!all.empty()) {
      const SnapshotId chosen = all[random() % all.size()].id;
      if (step % 3 == 0) {
        const auto opened = open(chosen);  // refused where its room is being written
        ASSERT_TRUE(!opened || release(opened->snapshot.ticket).ok());
      }
      if (step % 17 == 0)
        static_cast<void>(ask<Result<uint32_t>>(SnapshotActor::Drop{.id = chosen, .reply = {}}));
    }
  }
  // Until the writer is quiet.
  EXPECT_TRUE(eventually([&] { return difference(*index).empty(); })) << difference(*index);
  const auto late = watch();
  EXPECT_TRUE(eventually([&] { return difference(*late).empty(); })) << difference(*late);
}

TEST_F(SnapshotFeedTest, AfterARestartTheDiskIsToldOf) {
  use_disk();
  start();
  attach();
  for (uint32_t length : {5, 9, 14}) parked(test_tokens(length));
  ASSERT_TRUE(wait_on_disk(3));
  stop();
  start();
  const auto index = watch();
  attach();
  EXPECT_EQ(difference(*index), "");
  EXPECT_EQ(index->states().size(), 3u);
}

TEST_F(SnapshotFeedTest, AnotherStoreIsTheBeginningOfAnotherList) {
  start();
  const auto index = watch();
  attach();
  parked(test_tokens(8));
  snapshot::StateIdentity other = snapshot::test_identity();
  other.numerics = "exact";
  attach(other);
  EXPECT_EQ(difference(*index), "");
  ASSERT_EQ(index->begins.size(), 3u);
  EXPECT_NE(index->begins[1].instance_id, index->begins[2].instance_id);
}

TEST_F(SnapshotFeedTest, WhoDoesNotWantAnyMoreIsNotAsked) {
  start();
  attach();
  auto calls = std::make_shared<std::atomic<int>>(0);
  actor::tell(actor_, SnapshotActor::Watch{[calls](const FeedEvent&) { return ++*calls < 3; }});
  parked(test_tokens(8));
  parked(test_tokens(8, 500));
  EXPECT_EQ(*calls, 3) << "begin, complete, the first";
}

}  // namespace
}  // namespace strata::cache_manager
