// Attaching over gRPC, with a real server on a socket and the worker's real client.

#include "gpu-worker/expert_hub_service.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "cpu-expert-worker/board_client.h"
#include "services/rpc/server.h"
#include "tests/support/expert_board_support.h"
#include "tests/support/test_data.h"

namespace strata::gpu_worker {
namespace {

using cpu_expert_worker::BoardClient;
using cpu_expert_worker::BoardServer;

constexpr const char* kFingerprint = "0123456789abcdef";

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class ExpertHubServiceTest : public testing::Test {
 protected:
  ExpertHubServiceTest()
      : weights_(open_model(tests::models_golden_model().string())), layers_(experts_of(weights_)) {}
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-hub-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    start_server();
  }
  void TearDown() override {
    server_.reset();
    shm::remove_stale_segments(run_);
    std::filesystem::remove_all(folder_);
  }

  void start_server() {
    std::vector<std::unique_ptr<grpc::Service>> services;
    services.push_back(std::make_unique<ExpertHubService>(workers_, kFingerprint));
    auto server = rpc::Server::start({.run_dir = folder_.string(),
                                      .name = "gpu-worker",
                                      .status = [](v1::GetStatusResponse&) {},
                                      .metrics = std::make_shared<obs::Metrics>(obs::Labels{}),
                                      .config_hash = "",
                                      .metrics_listen = ""},
                                     std::move(services));
    ASSERT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
  }
  v1::AttachExpertsRequest request() const {
    v1::AttachExpertsRequest request;
    request.set_worker("cpu-expert-worker-0");
    request.set_pid(static_cast<uint32_t>(getpid()));
    request.set_threads(1);
    request.set_model_fingerprint(kFingerprint);
    request.set_board_layout_version(shm::kBoardLayoutVersion);
    return request;
  }
  // The answer to a request that is refused.
  grpc::Status refusal(const v1::AttachExpertsRequest& request) const {
    auto stub = v1::ExpertHub::NewStub(rpc::connect(folder_.string(), "gpu-worker"));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto stream = stub->Attach(&context, request);
    v1::AttachExpertsResponse response;
    EXPECT_FALSE(stream->Read(&response));
    return stream->Finish();
  }
  bool attached() const { return workers_.missing().empty(); }

  std::filesystem::path folder_;
  std::string run_ = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
  model::ModelWeights weights_;
  std::vector<model::LayerExperts> layers_;
  ExpertWorkers workers_{{.run_id = run_,
                          .geometry = {.hidden = weights_.config.hidden,
                                       .tokens_max = 8,
                                       .pairs_max = 8 * weights_.config.experts_used},
                          .lost_after_ms = 60'000}};
  BoardServer pool_{{.layers = layers_, .threads = 1, .wait = {.yield = true, .park_after_us = 200}}};
  std::unique_ptr<rpc::Server> server_;
};

TEST_F(ExpertHubServiceTest, AttachesAWorkerThatComputes) {
  const BoardClient client(
      {.channel = rpc::connect(folder_.string(), "gpu-worker"), .request = request(), .server = &pool_});
  ASSERT_TRUE(eventually([&] { return client.attached() && attached(); })) << client.detail();
  EXPECT_EQ(client.detail(), "");

  const ChosenResidents residents(weights_, [](uint32_t, uint32_t e) { return e % 2 == 0; });
  model::Parallel parallel(1);
  ExpertDispatch dispatch({.weights = &weights_,
                           .numerics = quant::Numerics::kReproducible,
                           .residents = &residents,
                           .workers = &workers_,
                           .usage = nullptr,
                           .parallel = &parallel,
                           .tokens_max = 8});
  dispatch.begin_window(std::vector<uint8_t>(8, 0));
  const MadeUpLayer made_up(weights_, 1, 8, quant::Numerics::kReproducible, 1);
  EXPECT_TRUE(same_bits(dispatched_parts(dispatch, weights_, made_up),
                        reference_parts(weights_, made_up, quant::Numerics::kReproducible)));
  EXPECT_EQ(dispatch.counters().fallbacks, 0U);
}

TEST_F(ExpertHubServiceTest, DetachesAWorkerThatGoesAway) {
  {
    const BoardClient client(
        {.channel = rpc::connect(folder_.string(), "gpu-worker"), .request = request(), .server = &pool_});
    ASSERT_TRUE(eventually([&] { return client.attached(); })) << client.detail();
  }
  EXPECT_TRUE(eventually([&] { return !attached(); }));
  EXPECT_TRUE(workers_.at_window_boundary().empty());
}

TEST_F(ExpertHubServiceTest, AttachesAgainAfterItsBoardWasRetired) {
  const BoardClient client(
      {.channel = rpc::connect(folder_.string(), "gpu-worker"), .request = request(), .server = &pool_});
  ASSERT_TRUE(eventually([&] { return client.attached(); })) << client.detail();
  const auto first = workers_.at_window_boundary().at(0);
  workers_.detach(first);
  ASSERT_TRUE(eventually([&] { return attached() && client.attached(); }));
  EXPECT_NE(workers_.at_window_boundary().at(0), first);
}

TEST_F(ExpertHubServiceTest, WaitsForAGpuWorkerThatIsNotThereYet) {
  server_.reset();
  const BoardClient client(
      {.channel = rpc::connect(folder_.string(), "gpu-worker"), .request = request(), .server = &pool_});
  ASSERT_TRUE(eventually([&] { return client.detail() == "waiting for the gpu-worker"; }));
  EXPECT_FALSE(client.attached());
  start_server();
  EXPECT_TRUE(eventually([&] { return client.attached(); })) << client.detail();
}

TEST_F(ExpertHubServiceTest, RefusesAnotherModelLayoutOrProcess) {
  v1::AttachExpertsRequest other_model = request();
  other_model.set_model_fingerprint("another");
  EXPECT_EQ(refusal(other_model).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  v1::AttachExpertsRequest other_layout = request();
  other_layout.set_board_layout_version(shm::kBoardLayoutVersion + 1);
  EXPECT_EQ(refusal(other_layout).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  v1::AttachExpertsRequest nobody = request();
  nobody.set_pid(0);
  EXPECT_EQ(refusal(nobody).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::AttachExpertsRequest nameless = request();
  nameless.clear_worker();
  EXPECT_EQ(refusal(nameless).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(attached());
}

}  // namespace
}  // namespace strata::gpu_worker
