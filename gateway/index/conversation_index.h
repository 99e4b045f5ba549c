#pragma once
// The index of known prefixes, kept true by those who have the states, and asked by every generation before
// it is submitted. Adds and removals come from two feeds, each with a back-off of its own; a keeper that is
// away or keeps nothing is no error, the index simply knows of nothing there.
//
// Lives on an executor of its own: a keeper that lists thousands of states must not delay the HTTP thread,
// and a search takes microseconds (docs/conversations.md).

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gateway/conversations/conversation_probe.h"
#include "gateway/engine/engine_client.h"
#include "gateway/index/state_feed.h"
#include "gateway/metrics/gateway_probe.h"
#include "services/actor/actor.h"

namespace strata::gateway {

// A search waits so long for a keeper that has just been asked and has not listed everything yet: for a
// restarted gateway or gpu-worker that is shorter than reading one prompt again. Counted from the watch's
// begin, so a keeper that never answers costs this once.
inline constexpr std::chrono::milliseconds kListingWaitMax{500};
inline constexpr std::chrono::milliseconds kFeedBackoffMin{100}, kFeedBackoffMax{1000};

class ConversationIndex : public actor::Actor {
 public:
  using Feeds = std::array<StateFeed*, 2>;  // by Holder; nullptr: nobody keeps states there

  struct Start {};
  struct Find {
    std::vector<int32_t> tokens = {};
    NamespaceId owner = {};
    std::function<void(const PrefixMatch&)> reply = {};  // called in this actor's mailbox
  };
  struct FeedSaid {
    Holder holder = Holder::kEngine;
    FeedEvent event = {};
  };
  struct WatchAgain {
    Holder holder = Holder::kEngine;
    uint64_t watch = 0;  // the one that ended
  };
  struct ListingWaitOver {};

  // feeds, probes: must outlive the actor.
  ConversationIndex(std::shared_ptr<actor::Executor> executor, PrefixIndexOptions options, Feeds feeds,
                    ConversationProbe& probe, GatewayProbe& faults);

  void on(Start);
  void on(Find find);
  void on(FeedSaid said);
  void on(WatchAgain again);
  void on(ListingWaitOver);
  // The monitor's looks: an engine that has come back is asked for its states at once.
  void on(const EngineState& state);

 private:
  enum class Stage : uint8_t { kAway, kAsked, kListing, kComplete };
  struct Keeper {
    StateFeed* feed = nullptr;
    Stage stage = Stage::kAway;
    uint64_t watch = 0;  // how many there were
    actor::Clock::time_point asked = {};
    std::chrono::milliseconds backoff = kFeedBackoffMin;
    uint64_t instance = 0;                       // 0: it has said nothing yet
    std::optional<IndexIdentity> identity = {};  // of its states
  };

  std::shared_ptr<ConversationIndex> self() {
    return std::static_pointer_cast<ConversationIndex>(shared_from_this());
  }
  Keeper& keeper(Holder holder) { return keepers_[static_cast<std::size_t>(holder)]; }
  void watch(Holder holder);
  void hear(Holder holder, const FeedBegin& begin);
  void hear(Holder holder, const FeedState& state);
  void hear(Holder holder, const FeedRemoved& removed);
  void hear(Holder holder, const FeedComplete&);
  void hear(Holder holder, const FeedEnded& ended);
  Status take(Holder holder, const FeedState& state);
  void drop_all(Holder holder);
  void answer(const Find& find) const;
  bool listing();
  void answer_waiting();

  PrefixIndex index_;
  std::array<Keeper, 2> keepers_;
  ConversationProbe* probe_;
  GatewayProbe* faults_;
  // What the engine's states depend on: what it said last, while it is away, too; before it has said
  // anything, what the store says of the gpu-worker that is attached to it.
  std::optional<IndexIdentity> identity_;
  bool engine_ready_ = false;
  std::vector<Find> waiting_;
};

}  // namespace strata::gateway
