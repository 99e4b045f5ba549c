#include "gateway/conversations/prefix_index.h"

#include <gmock/gmock.h>

#include <numeric>

namespace strata::gateway {
namespace {

constexpr uint64_t kEngine = 7, kStore = 8;  // instances
constexpr NamespaceId kAlice{.high = 1, .low = 1}, kBob{.high = 1, .low = 2};
// Which model, which options.
IndexIdentity identity_of(uint64_t model, uint64_t options) {
  return {.model = {.high = 0, .low = model}, .all = {.high = model, .low = options}};
}
const IndexIdentity kIdentity = identity_of(100, 200);

class PrefixIndexTest : public testing::Test {
 protected:
  void SetUp() override {
    EXPECT_TRUE(index_.replace(Holder::kEngine, kEngine, {}).ok());
    EXPECT_TRUE(index_.replace(Holder::kStore, kStore, {}).ok());
  }

  struct Entry {
    Source source = Source::kRam;
    NamespaceId owner = kAlice;
    IndexIdentity identity = kIdentity;
    uint32_t position = 0;  // 0: all tokens
    uint64_t cost_us = 10;
  };
  static SnapshotId id(uint64_t number) { return {.high = 0, .low = number}; }
  Status try_add(uint64_t number, std::span<const int32_t> tokens, const Entry& entry) {
    const bool store = holder_of(entry.source) == Holder::kStore;
    const auto all = static_cast<uint32_t>(tokens.size());
    return index_.add(store ? kStore : kEngine, {.info = {.id = id(number),
                                                          .source = entry.source,
                                                          .owner = entry.owner,
                                                          .identity = entry.identity,
                                                          .position = entry.position ? entry.position : all,
                                                          .cost_us = entry.cost_us},
                                                 .tokens = tokens});
  }
  void add(uint64_t number, std::span<const int32_t> tokens, const Entry& entry) {
    const Status added = try_add(number, tokens, entry);
    EXPECT_TRUE(added.ok()) << added.message();
  }
  void add(uint64_t number, std::span<const int32_t> tokens) { add(number, tokens, Entry()); }
  PrefixMatch find(std::span<const int32_t> tokens) const { return index_.find(tokens, kAlice, kIdentity); }
  // The id of the state found; 0: none.
  uint64_t found(std::span<const int32_t> tokens) const {
    const PrefixMatch match = find(tokens);
    return match.state ? match.state->id.low : 0;
  }

  // A chat of so many tokens; chats of different kinds share nothing but their first 4 tokens.
  static std::vector<int32_t> chat(std::size_t tokens, int32_t kind = 1) {
    std::vector<int32_t> out(tokens);
    std::iota(out.begin(), out.end(), kind * 100'000);
    for (std::size_t i = 0; i < std::min<std::size_t>(4, tokens); ++i) out[i] = static_cast<int32_t>(i);
    return out;
  }
  static std::span<const int32_t> first(const std::vector<int32_t>& tokens, std::size_t count) {
    return std::span(tokens).first(count);
  }

  PrefixIndex index_{{.reuse_tokens_min = 16}};
};

TEST_F(PrefixIndexTest, TakesTheLongestStateThatIsAPrefix) {
  const auto tokens = chat(100);
  add(1, first(tokens, 30));
  add(2, first(tokens, 60));
  add(3, chat(80, 2));
  const PrefixMatch match = find(tokens);
  ASSERT_TRUE(match.state);
  EXPECT_EQ(match.state->id, id(2));
  EXPECT_EQ(match.reused_tokens(), 60u);
  EXPECT_EQ(match.known_tokens, 60u);
  EXPECT_EQ(match.why.cause, MissCause::kNew);
  EXPECT_EQ(match.why.at_token, 60u);
}

// Rule C6: at least one token must be left to feed. States at N, N-1, N-2, 1 and 0 tokens of a prompt of N.
TEST_F(PrefixIndexTest, LeavesAtLeastOneTokenToFeed) {
  index_ = PrefixIndex({.reuse_tokens_min = 1});
  SetUp();
  const auto tokens = chat(50);
  EXPECT_EQ(found(tokens), 0u);
  add(1, first(tokens, 1));
  EXPECT_EQ(found(tokens), 1u);
  add(48, first(tokens, 48));
  EXPECT_EQ(found(tokens), 48u);
  add(50, tokens);
  EXPECT_EQ(found(tokens), 48u) << "the state after all tokens cannot give the next one";
  EXPECT_EQ(find(tokens).known_tokens, 50u);
  EXPECT_EQ(find(tokens).why.cause, MissCause::kNoCheckpoint);
  add(49, first(tokens, 49));
  EXPECT_EQ(found(tokens), 49u);
  EXPECT_EQ(find(tokens).why.cause, MissCause::kNone);
  EXPECT_EQ(found(first(tokens, 2)), 1u);
  EXPECT_EQ(found(first(tokens, 1)), 0u);
  EXPECT_EQ(find(first(tokens, 1)).why.cause, MissCause::kTooSmall);
  EXPECT_EQ(found({}), 0u);
  EXPECT_EQ(find({}).why.cause, MissCause::kTooSmall);
}

TEST_F(PrefixIndexTest, OfEqualPositionsTakesTheFasterSourceThenTheLowerCost) {
  const auto tokens = chat(40);
  const auto stored = first(tokens, 30);
  add(1, stored, {.source = Source::kDisk, .cost_us = 1});
  EXPECT_EQ(found(tokens), 1u);
  add(2, stored, {.source = Source::kRam, .cost_us = 90});
  EXPECT_EQ(found(tokens), 2u);
  add(3, stored, {.source = Source::kRam, .cost_us = 80});
  EXPECT_EQ(found(tokens), 3u);
  add(4, stored, {.source = Source::kCheckpoint, .cost_us = 99});
  EXPECT_EQ(found(tokens), 4u);
  add(5, stored, {.source = Source::kLive, .cost_us = 99});
  EXPECT_EQ(found(tokens), 5u);
  add(6, stored, {.source = Source::kRunning, .cost_us = 99});
  EXPECT_EQ(found(tokens), 6u);
  add(7, first(tokens, 31), {.source = Source::kDisk});
  EXPECT_EQ(found(tokens), 7u) << "a longer one counts more than a fast one";
}

TEST_F(PrefixIndexTest, ARunningSequenceGivesItsCheckpointAndTellsWhatItReadBehindIt) {
  const auto tokens = chat(100);
  add(1, tokens, {.source = Source::kRunning, .position = 40});
  std::vector<int32_t> other = tokens;
  other[70] = -5;
  const PrefixMatch match = find(other);
  EXPECT_EQ(match.reused_tokens(), 40u);
  EXPECT_EQ(match.known_tokens, 70u);
  EXPECT_EQ(match.why.cause, MissCause::kDiverged);
  EXPECT_EQ(match.why.at_token, 70u);
  EXPECT_EQ(match.why.entry, id(1));

  std::vector<int32_t> longer = tokens;
  longer.push_back(1);
  EXPECT_EQ(find(longer).why.cause, MissCause::kNoCheckpoint);
  EXPECT_EQ(find(longer).why.at_token, 100u);
  EXPECT_TRUE(index_.remove(id(1), Removal::kConsumed).ok());
  EXPECT_EQ(index_.stats().tokens, 0u);
}

// Editing the last message: everything before it is reused, and the report says where the texts part.
TEST_F(PrefixIndexTest, SaysAtWhichTokenAndFromWhomAPromptDiverged) {
  const auto tokens = chat(100);
  add(1, first(tokens, 50));
  add(2, tokens);
  std::vector<int32_t> edited = chat(120);
  edited[53] = -1;
  const PrefixMatch match = find(edited);
  EXPECT_EQ(match.reused_tokens(), 50u);
  EXPECT_EQ(match.why.cause, MissCause::kDiverged);
  EXPECT_EQ(match.why.at_token, 53u);
  EXPECT_EQ(match.why.entry, id(2));
}

TEST_F(PrefixIndexTest, AFewEqualFirstTokensMakeNoDivergedConversation) {
  add(1, chat(100, 1));
  const PrefixMatch match = find(chat(100, 2));
  EXPECT_FALSE(match.state);
  EXPECT_EQ(match.known_tokens, 4u);
  EXPECT_EQ(match.why.cause, MissCause::kNew);
  EXPECT_EQ(match.why.at_token, 4u);
}

TEST_F(PrefixIndexTest, DoesNotUseWhatIsTooSmall) {
  const auto tokens = chat(100);
  add(1, first(tokens, 15));
  EXPECT_FALSE(find(tokens).state);
  EXPECT_EQ(find(tokens).why.cause, MissCause::kTooSmall);
  EXPECT_EQ(find(first(tokens, 16)).why.cause, MissCause::kTooSmall) << "at most 15 could be reused";
  add(2, first(tokens, 16));
  EXPECT_EQ(found(tokens), 2u);
  EXPECT_EQ(found(first(tokens, 17)), 2u);
}

TEST_F(PrefixIndexTest, RemembersWhatWasEvictedAndNotWhatWasConsumed) {
  const auto tokens = chat(100);
  add(1, first(tokens, 80));
  add(2, first(tokens, 90));
  add(3, first(tokens, 30));
  EXPECT_TRUE(index_.remove(id(2), Removal::kConsumed).ok());
  EXPECT_TRUE(index_.remove(id(1), Removal::kEvicted).ok());
  PrefixMatch match = find(tokens);
  EXPECT_EQ(match.reused_tokens(), 30u);
  EXPECT_EQ(match.why.cause, MissCause::kEvicted);
  EXPECT_EQ(match.why.at_token, 80u);
  EXPECT_EQ(find(first(tokens, 80)).why.cause, MissCause::kNew) << "it could not have been used here";
  EXPECT_EQ(index_.find(tokens, kBob, kIdentity).why.cause, MissCause::kNew);

  add(4, first(tokens, 80));
  EXPECT_EQ(find(tokens).why.cause, MissCause::kNew) << "it is back";
}

TEST_F(PrefixIndexTest, TellsOtherOptionsFromAnotherModel) {
  const auto tokens = chat(100);
  add(1, first(tokens, 60), {.identity = identity_of(101, 200)});
  PrefixMatch match = find(tokens);
  EXPECT_FALSE(match.state);
  EXPECT_EQ(match.known_tokens, 0u);
  EXPECT_EQ(match.why.cause, MissCause::kIdentity);
  EXPECT_EQ(match.why.at_token, 60u);
  EXPECT_EQ(match.why.entry, id(1));
  add(2, first(tokens, 70), {.identity = identity_of(100, 201)});
  match = find(tokens);
  EXPECT_EQ(match.why.cause, MissCause::kOptionsChanged) << "it would have given more";
  EXPECT_EQ(match.why.entry, id(2));
  add(3, first(tokens, 70));
  EXPECT_EQ(find(tokens).why.cause, MissCause::kNew) << "nothing was lost";
}

TEST_F(PrefixIndexTest, AnotherNamespaceIsNeverSeen) {
  const auto tokens = chat(100);
  add(1, first(tokens, 50), {.owner = kBob});
  add(2, tokens, {.source = Source::kRunning, .owner = kBob, .position = 90});
  EXPECT_TRUE(index_.remove(id(1), Removal::kEvicted).ok());
  const PrefixMatch match = find(tokens);
  EXPECT_FALSE(match.state);
  EXPECT_EQ(match.known_tokens, 0u);
  EXPECT_EQ(match.why.cause, MissCause::kNew);
  EXPECT_EQ(match.why.entry, std::nullopt);
  EXPECT_EQ(index_.find(tokens, kBob, kIdentity).reused_tokens(), 90u);
}

TEST_F(PrefixIndexTest, SharedRootsAreSeenByAllAndNothingBehindThem) {
  const auto tokens = chat(100);
  add(1, first(tokens, 40), {.owner = shared_namespace()});
  EXPECT_EQ(found(tokens), 1u);
  EXPECT_EQ(index_.find(tokens, kBob, kIdentity).reused_tokens(), 40u);
  EXPECT_EQ(
      try_add(2, tokens, {.source = Source::kRunning, .owner = shared_namespace(), .position = 40}).code(),
      Code::kInvalidArgument);
  add(3, first(tokens, 60));
  EXPECT_EQ(found(tokens), 3u);
  EXPECT_EQ(index_.find(tokens, kBob, kIdentity).reused_tokens(), 40u);
  add(4, first(tokens, 70), {.owner = shared_namespace()});
  EXPECT_EQ(found(tokens), 4u);
  EXPECT_TRUE(index_.remove(id(4), Removal::kEvicted).ok());
  EXPECT_EQ(find(tokens).why.cause, MissCause::kEvicted);
  EXPECT_EQ(index_.find(tokens, shared_namespace(), kIdentity).reused_tokens(), 40u);
}

TEST_F(PrefixIndexTest, OfTheSamePositionOwnAndSharedTheFasterIsTaken) {
  const auto tokens = chat(100);
  add(1, first(tokens, 40), {.owner = shared_namespace()});
  add(2, first(tokens, 40), {.source = Source::kDisk});
  EXPECT_EQ(found(tokens), 1u);
  EXPECT_TRUE(index_.move(id(1), Source::kDisk, 99).ok());
  EXPECT_EQ(found(tokens), 2u);
}

TEST_F(PrefixIndexTest, AStateMovesWithinItsHolder) {
  const auto tokens = chat(50);
  add(1, first(tokens, 40));
  EXPECT_TRUE(index_.move(id(1), Source::kDisk, 77).ok());
  ASSERT_TRUE(find(tokens).state);
  EXPECT_EQ(find(tokens).state->source, Source::kDisk);
  EXPECT_EQ(find(tokens).state->cost_us, 77u);
  EXPECT_EQ(index_.stats().own[static_cast<std::size_t>(Source::kRam)], 0u);
  EXPECT_EQ(index_.stats().own[static_cast<std::size_t>(Source::kDisk)], 1u);
  EXPECT_EQ(index_.move(id(1), Source::kLive, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(index_.move(id(9), Source::kRam, 1).code(), Code::kNotFound);
  EXPECT_EQ(index_.remove(id(9), Removal::kEvicted).code(), Code::kNotFound);
}

TEST_F(PrefixIndexTest, WhatADeadProcessKeptIsGoneAtOnce) {
  const auto tokens = chat(100);
  add(1, first(tokens, 30), {.source = Source::kDisk});
  add(2, first(tokens, 50), {.source = Source::kRam});
  add(3, first(tokens, 90), {.source = Source::kLive});
  EXPECT_TRUE(index_.replace(Holder::kEngine, kEngine + 100, {}).ok());
  EXPECT_EQ(found(tokens), 2u);
  EXPECT_EQ(find(tokens).why.cause, MissCause::kEvicted) << "lost with its engine";
  EXPECT_EQ(try_add(4, first(tokens, 95), {.source = Source::kLive}).code(), Code::kAborted)
      << "late news of the dead engine";

  const IndexEntry kept{
      .info = {.id = id(5), .source = Source::kDisk, .owner = kAlice, .identity = kIdentity, .position = 30},
      .tokens = first(tokens, 30)};
  IndexEntry broken = kept;
  broken.info.id = id(6);
  broken.info.position = 31;
  IndexEntry foreign = kept;
  foreign.info.id = id(7);
  foreign.info.source = Source::kLive;
  EXPECT_EQ(index_.replace(Holder::kStore, kStore + 100, std::vector{broken, kept, foreign}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(found(tokens), 5u) << "one broken entry does not hide the others";
  EXPECT_EQ(index_.stats().states(), 1u);
}

TEST_F(PrefixIndexTest, RefusesWhatCannotBe) {
  const auto tokens = chat(20);
  EXPECT_EQ(try_add(1, tokens, {.position = 21}).code(), Code::kInvalidArgument);
  EXPECT_EQ(try_add(1, {}, {}).code(), Code::kInvalidArgument);
  add(1, tokens);
  EXPECT_EQ(try_add(1, tokens, {}).code(), Code::kAlreadyExists);
  PrefixIndex fresh;
  EXPECT_EQ(fresh.add(0, {.info = {.position = 20}, .tokens = tokens}).code(), Code::kAborted);
  EXPECT_EQ(fresh.add(3, {.info = {.position = 20}, .tokens = tokens}).code(), Code::kAborted);
}

TEST_F(PrefixIndexTest, GivesBackWhatItWasTold) {
  const auto tokens = chat(100);
  add(1, tokens, {.source = Source::kRunning, .position = 60});
  add(2, first(tokens, 30));
  ASSERT_TRUE(index_.get(id(1)));
  EXPECT_EQ(index_.get(id(1))->position, 60u);
  EXPECT_THAT(index_.tokens(id(1)), testing::ElementsAreArray(first(tokens, 60)));
  EXPECT_FALSE(index_.get(id(3)));
  EXPECT_THAT(index_.tokens(id(3)), testing::IsEmpty());
}

TEST_F(PrefixIndexTest, ForgetsNamespacesThatHaveBeenEmptyForLongest) {
  index_ = PrefixIndex({.reuse_tokens_min = 16, .empty_namespaces_max = 2});
  SetUp();
  const auto tokens = chat(50);
  const auto owner = [](uint64_t number) { return NamespaceId{.high = 5, .low = number}; };
  for (uint64_t number = 1; number <= 4; ++number) {
    add(number, first(tokens, 40), {.owner = owner(number)});
  }
  for (const uint64_t number : {2, 1, 3}) EXPECT_TRUE(index_.remove(id(number), Removal::kEvicted).ok());
  EXPECT_EQ(index_.stats().namespaces, 3u);
  const auto cause = [&](uint64_t number) { return index_.find(tokens, owner(number), kIdentity).why.cause; };
  EXPECT_EQ(cause(2), MissCause::kNew) << "forgotten";
  EXPECT_EQ(cause(1), MissCause::kEvicted);
  EXPECT_EQ(cause(3), MissCause::kEvicted);
  add(5, first(tokens, 20), {.owner = owner(1)});  // not empty any more
  EXPECT_TRUE(index_.remove(id(4), Removal::kEvicted).ok());
  EXPECT_EQ(index_.stats().namespaces, 3u);
  EXPECT_EQ(cause(3), MissCause::kEvicted);
}

TEST_F(PrefixIndexTest, KeepsWhichTokensWereGenerated) {
  const auto tokens = chat(100);
  const std::vector<TokenRange> ranges = {{.begin = 10, .end = 20}, {.begin = 30, .end = 90}};
  const IndexEntry entry{.info = {.id = id(1), .owner = kAlice, .identity = kIdentity, .position = 60},
                         .tokens = tokens,
                         .generated = ranges};
  EXPECT_TRUE(index_.add(kStore, entry).ok());
  EXPECT_THAT(index_.generated(id(1)),
              testing::ElementsAre(TokenRange{.begin = 10, .end = 20}, TokenRange{.begin = 30, .end = 60}));
  EXPECT_THAT(index_.generated(id(2)), testing::IsEmpty());
  for (const auto& broken : {std::vector<TokenRange>{{.begin = 10, .end = 10}},
                             std::vector<TokenRange>{{.begin = 10, .end = 20}, {.begin = 19, .end = 30}}}) {
    IndexEntry other = entry;
    other.info.id = id(2);
    other.generated = broken;
    EXPECT_EQ(index_.add(kStore, other).code(), Code::kInvalidArgument);
  }
}

TEST(IndexIdentity, TellsTheModelFromEverythingElse) {
  snapshot::StateIdentity made;
  made.model_fingerprint = "abc";
  const IndexIdentity plain = index_identity(made);
  EXPECT_EQ(plain, index_identity(made));
  made.options = "control_vector=1\n";
  EXPECT_EQ(index_identity(made).model, plain.model);
  EXPECT_NE(index_identity(made).all, plain.all);
  made.model_fingerprint = "abd";
  EXPECT_NE(index_identity(made).model, plain.model);
}

TEST(NamespaceId, NoKeyIsTheSharedOne) {
  EXPECT_EQ(key_namespace("a"), key_namespace("a"));
  EXPECT_NE(key_namespace("a"), key_namespace("b"));
  for (const char* key : {"", "shared", "key shared"}) EXPECT_NE(key_namespace(key), shared_namespace());
}

TEST(ConversationWords, EveryValueHasAName) {
  for (int i = 0; i <= static_cast<int>(Source::kDisk); ++i) {
    EXPECT_FALSE(source_name(static_cast<Source>(i)).empty()) << i;
  }
  for (int i = 0; i <= static_cast<int>(MissCause::kError); ++i) {
    EXPECT_FALSE(miss_cause_name(static_cast<MissCause>(i)).empty()) << i;
  }
}

}  // namespace
}  // namespace strata::gateway
