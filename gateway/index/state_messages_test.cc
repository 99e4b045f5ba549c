// Messages of the two keepers as events, and what is refused.

#include "gateway/index/state_messages.h"

#include <gtest/gtest.h>

namespace strata::gateway {
namespace {

snapshot::StateIdentity identity() {
  return {.model_fingerprint = "demo",
          .numerics = "reproducible",
          .kv_format = "float16",
          .layout_version = 1,
          .page_tokens = 64,
          .page_bytes = 4096,
          .fixed_bytes = 8,
          .parts = {{.name = "state", .offset = 0, .bytes = 8}},
          .options = ""};
}

std::string identity_bytes() {
  const auto bytes = snapshot::serialize(identity());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class Message>
Message begin(std::string bytes = identity_bytes()) {
  Message message;
  message.mutable_begin()->set_instance_id(5);
  message.mutable_begin()->set_identity(std::move(bytes));
  return message;
}

v1::WatchStatesResponse state(v1::StateSource source) {
  v1::WatchStatesResponse message;
  v1::StateAdded& added = *message.mutable_added();
  added.set_id(3);
  added.set_source(source);
  added.set_name_space(key_namespace("alice").bytes());
  for (int token : {1, 2, 3}) added.add_tokens(token);
  added.add_generated()->set_begin(1);
  added.mutable_generated(0)->set_end(3);
  return message;
}

v1::WatchSnapshotsResponse snapshot_added() {
  v1::WatchSnapshotsResponse message;
  v1::Snapshot& snapshot = *message.mutable_added()->mutable_snapshot();
  snapshot.set_id(SnapshotId{.high = 1, .low = 2}.bytes());
  snapshot.set_name_space(key_namespace("alice").bytes());
  snapshot.set_in_memory(true);
  snapshot.set_on_disk(true);
  message.mutable_added()->add_tokens(4);
  return message;
}

template <class Event, class Reader, class Message>
Event read(Reader& reader, const Message& message) {
  auto event = reader.read(message);
  EXPECT_TRUE(event && *event && std::holds_alternative<Event>(**event)) << message.DebugString();
  return event && *event && std::holds_alternative<Event>(**event) ? std::get<Event>(**event) : Event{};
}

template <class Reader, class Message>
void expect_refused(Reader& reader, const Message& message, std::string_view named) {
  auto event = reader.read(message);
  ASSERT_FALSE(event) << message.DebugString();
  EXPECT_EQ(event.error().code(), Code::kDataLoss);
  EXPECT_NE(event.error().message().find(named), std::string::npos) << event.error().message();
}

TEST(StatesReader, ReadsWhatTheEngineSays) {
  StatesReader reader;
  const auto began = read<FeedBegin>(reader, begin<v1::WatchStatesResponse>());
  EXPECT_EQ(began.instance, 5u);
  EXPECT_EQ(began.identity, index_identity(identity()));

  const auto added = read<FeedState>(reader, state(v1::STATE_SOURCE_RUNNING));
  EXPECT_EQ(added.id, (SnapshotId{.high = 5, .low = 3}));
  EXPECT_EQ(added.source, Source::kRunning);
  EXPECT_EQ(added.owner, key_namespace("alice"));
  EXPECT_EQ(added.tokens, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(added.generated, (std::vector<TokenRange>{{.begin = 1, .end = 3}}));
  EXPECT_EQ(read<FeedState>(reader, state(v1::STATE_SOURCE_LIVE)).source, Source::kLive);
  auto shared = state(v1::STATE_SOURCE_CHECKPOINT);
  shared.mutable_added()->set_shared(true);
  EXPECT_EQ(read<FeedState>(reader, shared).owner, shared_namespace());
  EXPECT_EQ(read<FeedState>(reader, shared).source, Source::kCheckpoint);

  v1::WatchStatesResponse message;
  message.mutable_removed()->set_id(3);
  EXPECT_EQ(read<FeedRemoved>(reader, message).why, Removal::kEvicted);
  message.mutable_removed()->set_taken(true);
  EXPECT_EQ(read<FeedRemoved>(reader, message).why, Removal::kConsumed);
  EXPECT_EQ(read<FeedRemoved>(reader, message).id, added.id);
  message.mutable_complete();
  read<FeedComplete>(reader, message);
  const auto newer = reader.read(v1::WatchStatesResponse());
  ASSERT_TRUE(newer);
  EXPECT_FALSE(*newer) << "something of a newer engine";
}

TEST(StatesReader, RefusesWhatMakesNoSense) {
  StatesReader reader;
  expect_refused(reader, state(v1::STATE_SOURCE_LIVE), "before begin");
  expect_refused(reader, begin<v1::WatchStatesResponse>("no identity"), "begin.identity");
  auto unnamed = begin<v1::WatchStatesResponse>();
  unnamed.mutable_begin()->set_instance_id(0);
  expect_refused(reader, unnamed, "instance_id");
  read<FeedBegin>(reader, begin<v1::WatchStatesResponse>());
  expect_refused(reader, state(v1::STATE_SOURCE_UNSPECIFIED), "added.source");
  auto homeless = state(v1::STATE_SOURCE_LIVE);
  homeless.mutable_added()->set_name_space("short");
  expect_refused(reader, homeless, "added.name_space");
}

TEST(SnapshotsReader, ReadsWhatTheStoreSays) {
  SnapshotsReader reader;
  auto early = begin<v1::WatchSnapshotsResponse>("");
  early.mutable_begin()->set_instance_id(0);
  EXPECT_FALSE(read<FeedBegin>(reader, early).identity) << "no gpu-worker has attached";
  auto message = snapshot_added();
  const auto all = read<FeedState>(reader, message);
  EXPECT_EQ(all.id, (SnapshotId{.high = 1, .low = 2}));
  EXPECT_EQ(all.owner, key_namespace("alice"));
  EXPECT_EQ(all.source, Source::kRam);
  EXPECT_TRUE(all.base.is_zero());
  message.mutable_added()->mutable_snapshot()->set_in_memory(false);
  message.mutable_added()->set_base(SnapshotId{.high = 3, .low = 4}.bytes());
  message.mutable_added()->set_base_tokens(7);
  const auto delta = read<FeedState>(reader, message);
  EXPECT_EQ(delta.source, Source::kDisk);
  EXPECT_EQ(delta.base, (SnapshotId{.high = 3, .low = 4}));
  EXPECT_EQ(delta.base_tokens, 7u);
  EXPECT_EQ(delta.tokens, (std::vector<int32_t>{4}));

  v1::WatchSnapshotsResponse other;
  other.mutable_removed()->set_id(all.id.bytes());
  other.mutable_removed()->set_cause("budget");
  EXPECT_EQ(read<FeedRemoved>(reader, other).why, Removal::kEvicted);
  other.mutable_removed()->set_cause("dropped");
  EXPECT_EQ(read<FeedRemoved>(reader, other).why, Removal::kConsumed);
  other.mutable_complete();
  read<FeedComplete>(reader, other);
}

TEST(SnapshotsReader, RefusesWhatMakesNoSense) {
  SnapshotsReader reader;
  expect_refused(reader, snapshot_added(), "before begin");
  auto unnamed = begin<v1::WatchSnapshotsResponse>();
  unnamed.mutable_begin()->set_instance_id(0);
  expect_refused(reader, unnamed, "instance_id");
  read<FeedBegin>(reader, begin<v1::WatchSnapshotsResponse>());
  auto nowhere = snapshot_added();
  nowhere.mutable_added()->mutable_snapshot()->set_in_memory(false);
  nowhere.mutable_added()->mutable_snapshot()->set_on_disk(false);
  expect_refused(reader, nowhere, "neither");
  auto nameless = snapshot_added();
  nameless.mutable_added()->mutable_snapshot()->set_id("");
  expect_refused(reader, nameless, "added.snapshot.id");
  auto baseless = snapshot_added();
  baseless.mutable_added()->set_base("x");
  expect_refused(reader, baseless, "added.base");
  v1::WatchSnapshotsResponse removed;
  removed.mutable_removed();
  expect_refused(reader, removed, "removed.id");
}

}  // namespace
}  // namespace strata::gateway
