// The feeds over real sockets: peers that are not there, that do not know the service, and that break the
// protocol. What they say when all is well is tested with the whole gateway.

#include "gateway/index/grpc_state_feeds.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "services/rpc/server.h"
#include "strata/v1/snapshots.grpc.pb.h"

namespace strata::gateway {
namespace {

class BrokenStore final : public v1::Snapshots::Service {
 public:
  grpc::Status Watch(grpc::ServerContext*, const v1::WatchSnapshotsRequest*,
                     grpc::ServerWriter<v1::WatchSnapshotsResponse>* writer) override {
    v1::WatchSnapshotsResponse event;
    event.mutable_complete();
    writer->Write(event);
    return grpc::Status::OK;
  }
};

class GrpcStateFeedsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "strata-feeds-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    run_dir_ = folder;
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(run_dir_);
  }
  void serve(const char* name, std::vector<std::unique_ptr<grpc::Service>> services) {
    rpc::ServerOptions options{.run_dir = run_dir_,
                               .name = name,
                               .status = [](v1::GetStatusResponse&) {},
                               .metrics = std::make_shared<obs::Metrics>(obs::Labels{}),
                               .config_hash = ""};
    auto server = rpc::Server::start(std::move(options), std::move(services));
    ASSERT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
  }
  // Watches until the end, and gives it; nothing else must have been said.
  static Status end_of(StateFeed& feed) {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<FeedEvent> events;
    feed.watch([&](FeedEvent event) {
      std::scoped_lock lock(mutex);
      events.push_back(std::move(event));
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] {
      return !events.empty() && std::holds_alternative<FeedEnded>(events.back());
    }));
    EXPECT_EQ(events.size(), 1u);
    return events.empty() ? Status() : std::get<FeedEnded>(events.back()).status;
  }

  std::string run_dir_;
  std::unique_ptr<rpc::Server> server_;
};

TEST_F(GrpcStateFeedsTest, PeersThatAreAwayOrKeepNothingSaySo) {
  EXPECT_EQ(end_of(*make_engine_feed(run_dir_)).code(), Code::kUnavailable);
  EXPECT_EQ(end_of(*make_store_feed(run_dir_)).code(), Code::kUnavailable);
  serve("gpu-worker", {});
  EXPECT_EQ(end_of(*make_engine_feed(run_dir_)).code(), Code::kUnimplemented);
}

TEST_F(GrpcStateFeedsTest, WhatMakesNoSenseEndsTheStream) {
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<BrokenStore>());
  serve("cache-manager", std::move(services));
  const Status end = end_of(*make_store_feed(run_dir_));
  EXPECT_EQ(end.code(), Code::kDataLoss);
  EXPECT_NE(end.message().find("before begin"), std::string::npos) << end.message();
}

}  // namespace
}  // namespace strata::gateway
