#include "gateway/index/conversation_index.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/obs/log.h"

namespace strata::gateway {

namespace {

constexpr Holder kHolders[] = {Holder::kEngine, Holder::kStore};

std::string_view holder_name(Holder holder) {
  return holder == Holder::kEngine ? "gpu-worker" : "cache-manager";
}

}  // namespace

ConversationIndex::ConversationIndex(std::shared_ptr<actor::Executor> executor, PrefixIndexOptions options,
                                     Feeds feeds, ConversationProbe& probe, GatewayProbe& faults)
    : Actor(std::move(executor)), index_(options), probe_(&probe), faults_(&faults) {
  for (const Holder holder : kHolders) keeper(holder).feed = feeds[static_cast<std::size_t>(holder)];
}

void ConversationIndex::on(Start) {
  for (const Holder holder : kHolders) watch(holder);
}

// ---- searches

void ConversationIndex::on(Find find) {
  if (!listing()) return answer(find);
  waiting_.push_back(std::move(find));
}

void ConversationIndex::answer(const Find& find) const {
  // Without an identity nothing was ever said, and nothing is found.
  find.reply(index_.find(find.tokens, find.owner, identity_.value_or(IndexIdentity{})));
}

bool ConversationIndex::listing() {
  const auto now = executor().now();
  return std::ranges::any_of(keepers_, [now](const Keeper& keeper) {
    return (keeper.stage == Stage::kAsked || keeper.stage == Stage::kListing) &&
           now - keeper.asked < kListingWaitMax;
  });
}

void ConversationIndex::on(ListingWaitOver) { answer_waiting(); }

void ConversationIndex::answer_waiting() {
  if (waiting_.empty() || listing()) return;
  for (const Find& find : std::exchange(waiting_, {})) answer(find);
}

// ---- the keepers

void ConversationIndex::watch(Holder holder) {
  Keeper& one = keeper(holder);
  if (one.feed == nullptr || one.stage != Stage::kAway) return;
  one.stage = Stage::kAsked;
  one.asked = executor().now();
  ++one.watch;
  std::weak_ptr<ConversationIndex> weak = self();
  one.feed->watch([weak, holder](FeedEvent event) {
    if (auto alive = weak.lock()) tell(alive, FeedSaid{.holder = holder, .event = std::move(event)});
  });
  tell_after(self(), kListingWaitMax, ListingWaitOver{});
}

void ConversationIndex::on(WatchAgain again) {
  if (again.watch == keeper(again.holder).watch) watch(again.holder);
}

void ConversationIndex::on(const EngineState& state) {
  const bool ready = state.phase == EngineState::Phase::kReady;
  if (ready && !std::exchange(engine_ready_, ready)) watch(Holder::kEngine);
  engine_ready_ = ready;
}

void ConversationIndex::on(FeedSaid said) {
  std::visit([&](const auto& event) { hear(said.holder, event); }, said.event);
  // A list is counted when it is complete.
  if (keeper(said.holder).stage != Stage::kListing) probe_->count_entries(index_.stats());
  answer_waiting();
}

void ConversationIndex::hear(Holder holder, const FeedBegin& begin) {
  Keeper& one = keeper(holder);
  one.stage = Stage::kListing;
  one.backoff = kFeedBackoffMin;
  if (begin.instance != 0) one.instance = begin.instance;
  one.identity = begin.identity;
  drop_all(holder);
  if (begin.identity && (holder == Holder::kEngine || keeper(Holder::kEngine).instance == 0)) {
    identity_ = begin.identity;
  }
}

void ConversationIndex::drop_all(Holder holder) {
  if (keeper(holder).instance == 0) return;  // it has never had any
  const Status dropped = index_.replace(holder, keeper(holder).instance, {});
  CHECK(dropped.ok(), "{}", dropped.message());
}

void ConversationIndex::hear(Holder holder, const FeedState& state) {
  // The store does not know yet whose states they are. It begins anew when a gpu-worker has told it.
  if (!keeper(holder).identity) return;
  const Status taken = take(holder, state);
  if (taken.ok()) return;
  faults_->protocol_fault(ProtocolFault::kStateFeed);
  obs::warn("index", "{}: {}", holder_name(holder), taken.message());
}

Status ConversationIndex::take(Holder holder, const FeedState& state) {
  const uint64_t cost_us = 0;  // the source alone orders states of one position
  if (index_.get(state.id)) return index_.move(state.id, state.source, cost_us);
  IndexEntry entry{.info = {.id = state.id,
                            .source = state.source,
                            .owner = state.owner,
                            .identity = *keeper(holder).identity,
                            .cost_us = cost_us},
                   .generated = state.generated};
  std::vector<int32_t> tokens;
  if (!state.base.is_zero()) {
    tokens = index_.tokens(state.base);
    if (tokens.size() < state.base_tokens) {
      return fail(Code::kInvalidArgument, "state {}: begins with {} tokens of {}, which has {}",
                  state.id.text(), state.base_tokens, state.base.text(), tokens.size());
    }
    tokens.resize(state.base_tokens);
  }
  tokens.insert(tokens.end(), state.tokens.begin(), state.tokens.end());
  entry.tokens = tokens;
  entry.info.position = static_cast<uint32_t>(tokens.size());
  return index_.add(keeper(holder).instance, entry);
}

void ConversationIndex::hear(Holder, const FeedRemoved& removed) {
  // Unknown: it was one of those that could not be taken.
  (void)index_.remove(removed.id, removed.why);
}

void ConversationIndex::hear(Holder holder, const FeedComplete&) {
  keeper(holder).stage = Stage::kComplete;
  obs::info("index", "{} lists its states: {} known now", holder_name(holder), index_.stats().states());
}

void ConversationIndex::hear(Holder holder, const FeedEnded& ended) {
  Keeper& one = keeper(holder);
  const bool was_heard = one.stage == Stage::kListing || one.stage == Stage::kComplete;
  one.stage = Stage::kAway;
  if (was_heard) {
    // Nothing can be had from it now, and its successor says anew what there is.
    drop_all(holder);
    obs::info("index", "{} does not say any more which states it has: {}", holder_name(holder),
              ended.status.message());
  }
  if (ended.status.code() == Code::kDataLoss) {
    faults_->protocol_fault(ProtocolFault::kStateFeed);
    obs::warn("index", "{}: {}", holder_name(holder), ended.status.message());
  }
  tell_after(self(), one.backoff, WatchAgain{.holder = holder, .watch = one.watch});
  one.backoff = std::min(2 * one.backoff, kFeedBackoffMax);
}

}  // namespace strata::gateway
