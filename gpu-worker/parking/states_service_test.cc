// The service over a real socket, and what names the states that it tells of.

#include "gpu-worker/parking/states_service.h"

#include <gtest/gtest.h>

#include "gpu-worker/parking/state_identity.h"
#include "gpu-worker/service_test_server.h"

namespace strata::gpu_worker {
namespace {

using What = StateChange::What;

StateChange added(uint64_t id, StateSource source, std::vector<int32_t> tokens) {
  return {.what = What::kAdded,
          .id = id,
          .source = source,
          .name_space = {.high = 1, .low = 2},
          .kind = snapshot::SnapshotKind::kRoot,
          .tokens = std::move(tokens),
          .generated = {{1, 2}}};
}

const StateLayout kLayout({{"hash.0", 16, 0, 0}, {"tokens.0", 4096, 1, 4}});
snapshot::StateIdentity identity(const StateOrigin& origin) { return state_identity(origin, kLayout); }
const StateOrigin kOrigin{"f1", "reproducible", "host", ""};

class StatesServiceTest : public testing::Test {
 protected:
  v1::WatchStatesResponse next() {
    v1::WatchStatesResponse response;
    EXPECT_TRUE(reader_->Read(&response));
    return response;
  }
  void watch() {
    limit(context_);
    reader_ = v1::States::NewStub(server_.channel())->Watch(&context_, {});
  }

  StateFeed feed_;
  StatesService service_{feed_, identity(kOrigin), 77};
  ServiceTestServer server_{{&service_}};
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchStatesResponse>> reader_;
};

TEST_F(StatesServiceTest, TellsWhatThereIsAndThenWhatChanges) {
  feed_.apply({added(1, StateSource::kRunning, {4, 5}), added(2, StateSource::kLive, {4, 5, 6})});
  feed_.apply({{.what = What::kSource, .id = 1, .source = StateSource::kCheckpoint}});
  watch();
  const auto begin = next();
  EXPECT_EQ(begin.begin().instance_id(), 77u);
  const auto told = snapshot::parse_identity(std::as_bytes(std::span(begin.begin().identity())));
  ASSERT_TRUE(told);
  EXPECT_EQ(*told, identity(kOrigin));
  const auto first = next();
  EXPECT_EQ(first.added().id(), 1u);
  EXPECT_EQ(first.added().source(), v1::STATE_SOURCE_CHECKPOINT) << "what it is by now";
  EXPECT_EQ(first.added().kind(), v1::SNAPSHOT_KIND_ROOT);
  EXPECT_EQ(first.added().name_space(), (snapshot::Hash128{.high = 1, .low = 2}).bytes());
  EXPECT_EQ(first.added().tokens_size(), 2);
  EXPECT_EQ(first.added().generated(0).begin(), 1u);
  EXPECT_EQ(next().added().source(), v1::STATE_SOURCE_LIVE);
  EXPECT_TRUE(next().has_complete());
  feed_.apply({{.what = What::kRemoved, .id = 2, .taken = true},
               {.what = What::kSource,
                .id = 1,
                .source = StateSource::kRunning,
                .name_space = {.high = 1, .low = 2}}});
  const auto removed = next();
  EXPECT_EQ(removed.removed().id(), 2u);
  EXPECT_TRUE(removed.removed().taken());
  const auto changed = next();
  EXPECT_EQ(changed.added().source(), v1::STATE_SOURCE_RUNNING);
  EXPECT_EQ(changed.added().name_space(), (snapshot::Hash128{.high = 1, .low = 2}).bytes());
  EXPECT_EQ(changed.added().tokens_size(), 0);
  context_.TryCancel();
}

TEST_F(StatesServiceTest, CountsWhatIsKept) {
  feed_.apply({added(1, StateSource::kRunning, {4}),
               added(2, StateSource::kLive, std::vector<int32_t>(kStatePageTokens + 1))});
  EXPECT_EQ(feed_.counts().live, 1u);
  EXPECT_EQ(feed_.counts().checkpoints, 1u);
  EXPECT_EQ(feed_.counts().live_pages, 2u);
}

TEST(StateIdentity, IsWhatDecidesTheBytes) {
  const auto plain = identity(kOrigin);
  EXPECT_TRUE(snapshot::check_identity(plain).ok());
  EXPECT_EQ(plain, identity({"f1", "reproducible", "cuda", ""})) << "both devices compute the same bits";
  EXPECT_NE(plain, identity({"f2", "reproducible", "host", ""}));
  EXPECT_NE(identity({"f1", "fast", "host", ""}), identity({"f1", "fast", "cuda", ""}));
  EXPECT_NE(plain, identity({"f1", "reproducible", "host", "uniform"}));
}

}  // namespace
}  // namespace strata::gpu_worker
