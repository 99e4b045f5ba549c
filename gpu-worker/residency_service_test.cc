// The exchange protocol over a real socket: what a cache manager gets, and what becomes of its exchanges when
// it goes away.

#include "gpu-worker/residency_service.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "gpu-worker/fake_device.h"
#include "gpu-worker/service_test_server.h"

namespace strata::gpu_worker {
namespace {

class ResidencyServiceTest : public testing::Test {
 protected:
  // An open Attach stream.
  struct Client {
    std::unique_ptr<v1::Residency::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::AttachCacheResponse>> reader;
    v1::AttachCacheResponse grant;
  };
  v1::AttachCacheRequest attach_request() {
    v1::AttachCacheRequest request;
    request.set_pid(static_cast<uint32_t>(::getpid()));
    request.set_model_fingerprint("fingerprint");
    request.set_layout_version(shm::kResidencyLayoutVersion);
    return request;
  }
  std::unique_ptr<Client> attach(const v1::AttachCacheRequest& request) {
    auto client = std::make_unique<Client>();
    client->stub = v1::Residency::NewStub(server_.channel());
    limit(client->context);
    client->reader = client->stub->Attach(&client->context, request);
    client->reader->Read(&client->grant);
    return client;
  }
  std::unique_ptr<Client> attach() { return attach(attach_request()); }
  grpc::Status retire(Client& client, std::vector<ExpertExchange> exchanges,
                      v1::RetireResponse* response = nullptr) {
    grpc::ClientContext context;
    limit(context);
    v1::RetireRequest request;
    request.set_epoch(client.grant.epoch());
    for (const ExpertExchange& each : exchanges) {
      v1::Exchange& exchange = *request.add_exchanges();
      exchange.set_slot(each.slot);
      exchange.set_layer(each.layer);
      exchange.set_expert(each.expert);
    }
    v1::RetireResponse own;
    return client.stub->Retire(&context, request, response != nullptr ? response : &own);
  }
  grpc::Status land(Client& client, std::vector<uint32_t> slots) {
    grpc::ClientContext context;
    limit(context);
    v1::LandRequest request;
    request.set_epoch(client.grant.epoch());
    request.mutable_slots()->Add(slots.begin(), slots.end());
    v1::LandResponse response;
    return client.stub->Land(&context, request, &response);
  }
  shm::SlotState state(uint32_t slot) {
    auto table = shm::ResidencyTable::attach(device_.residents().segment().name(),
                                             device_.residents().segment().bytes(),
                                             device_.residents().segment().instance_id());
    return table->slot(slot).state;
  }
  bool wait_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 10000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }

  FakeDevice device_{1};
  WindowLoop loop_{{.device = &device_, .context_tokens = 1000, .prefill_chunk_tokens = 8}};
  ResidencyService service_{{.loop = &loop_, .device = &device_, .model_fingerprint = "fingerprint"}};
  ServiceTestServer server_{{&service_}};
};

TEST_F(ResidencyServiceTest, HandsOverArenaTableAndUsageBoard) {
  EXPECT_FALSE(service_.attached()());
  auto client = attach();
  const v1::AttachCacheResponse& grant = client->grant;
  EXPECT_NE(grant.epoch(), 0u);
  EXPECT_TRUE(service_.attached()());
  EXPECT_EQ(grant.slot_count(), 4u);
  EXPECT_TRUE(shm::Segment::attach(grant.arena_segment(), shm::SegmentKind::kArena, shm::kArenaLayoutVersion,
                                   grant.arena_bytes(), grant.arena_instance_id()));
  EXPECT_TRUE(
      shm::ResidencyTable::attach(grant.table_segment(), grant.table_bytes(), grant.table_instance_id()));
  EXPECT_TRUE(shm::UsageBoard::attach(grant.usage_segment(), grant.usage_bytes(), grant.usage_instance_id()));
}

TEST_F(ResidencyServiceTest, MakesAnExchange) {
  auto client = attach();
  v1::RetireResponse retired;
  ASSERT_TRUE(retire(*client, {{1, 0, 3}, {1, 0, 4}}, &retired).ok());
  ASSERT_EQ(retired.accepted_size(), 2);
  EXPECT_TRUE(retired.accepted(0));
  EXPECT_FALSE(retired.accepted(1));
  EXPECT_EQ(state(1), shm::SlotState::kReserved);
  ASSERT_TRUE(land(*client, {1}).ok());
  EXPECT_EQ(state(1), shm::SlotState::kResident);
  EXPECT_EQ(land(*client, {1}).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ResidencyServiceTest, AbandonsReservedSlots) {
  auto client = attach();
  ASSERT_TRUE(retire(*client, {{1, 0, 3}}).ok());
  grpc::ClientContext context;
  limit(context);
  v1::AbandonRequest request;
  request.set_epoch(client->grant.epoch());
  request.add_slots(1);
  v1::AbandonResponse response;
  ASSERT_TRUE(client->stub->Abandon(&context, request, &response).ok());
  EXPECT_EQ(state(1), shm::SlotState::kEmpty);
}

TEST_F(ResidencyServiceTest, ABrokenStreamEmptiesWhatWasReserved) {
  auto client = attach();
  ASSERT_TRUE(retire(*client, {{0, 0, 1}, {1, 0, 2}}).ok());
  ASSERT_TRUE(land(*client, {1}).ok());
  client->context.TryCancel();
  EXPECT_TRUE(wait_until([&] { return state(0) == shm::SlotState::kEmpty; }));
  EXPECT_EQ(state(1), shm::SlotState::kResident);
  EXPECT_TRUE(wait_until([&] { return !service_.attached()(); }));
  EXPECT_EQ(land(*client, {0}).error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(ResidencyServiceTest, ANewCacheManagerTakesOver) {
  auto first = attach();
  ASSERT_TRUE(retire(*first, {{0, 0, 1}}).ok());
  auto second = attach();
  EXPECT_NE(second->grant.epoch(), first->grant.epoch());
  v1::AttachCacheResponse nothing;
  EXPECT_FALSE(first->reader->Read(&nothing));
  EXPECT_EQ(first->reader->Finish().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(state(0), shm::SlotState::kEmpty);
  EXPECT_EQ(retire(*first, {{0, 0, 1}}).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_TRUE(retire(*second, {{0, 0, 1}}).ok());
  EXPECT_TRUE(service_.attached()());
}

TEST_F(ResidencyServiceTest, EndsAHolderOfAnotherProcessBeforeItHandsTheSlotsOn) {
  pid_t other = ::fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    for (;;) ::pause();
  }
  v1::AttachCacheRequest request = attach_request();
  request.set_pid(static_cast<uint32_t>(other));
  auto first = attach(request);
  ASSERT_NE(first->grant.epoch(), 0u);
  auto reaper = std::thread([other] { ::waitpid(other, nullptr, 0); });
  auto second = attach();
  EXPECT_NE(second->grant.epoch(), 0u);
  reaper.join();  // hangs, and with it the test's time limit, if nobody ended the process
}

TEST_F(ResidencyServiceTest, RefusesAnotherModelLayoutOrProcess) {
  auto refused = [&](v1::AttachCacheRequest request) {
    auto client = attach(request);
    EXPECT_EQ(client->grant.epoch(), 0u);
    return client->reader->Finish().error_code();
  };
  v1::AttachCacheRequest request = attach_request();
  request.set_model_fingerprint("another");
  EXPECT_EQ(refused(request), grpc::StatusCode::FAILED_PRECONDITION);
  request = attach_request();
  request.set_layout_version(shm::kResidencyLayoutVersion + 1);
  EXPECT_EQ(refused(request), grpc::StatusCode::FAILED_PRECONDITION);
  request = attach_request();
  request.set_pid(0x3fffffff);
  EXPECT_EQ(refused(request), grpc::StatusCode::NOT_FOUND);
  EXPECT_FALSE(service_.attached()());
}

}  // namespace
}  // namespace strata::gpu_worker
