#include "services/rpc/server.h"

#include <gmock/gmock.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "services/sys/process.h"
#include "strata/v1/experts.grpc.pb.h"
#include "strata/v1/process.grpc.pb.h"

namespace strata::rpc {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Streams nothing until the call is cancelled, as Attach does.
class HoldingHub final : public v1::ExpertHub::Service {
 public:
  grpc::Status Attach(grpc::ServerContext* context, const v1::AttachExpertsRequest*,
                      grpc::ServerWriter<v1::AttachExpertsResponse>*) override {
    attached.set_value();
    while (!context->IsCancelled()) std::this_thread::sleep_for(5ms);
    return grpc::Status::CANCELLED;
  }
  std::promise<void> attached;
};

class RpcServer : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "strata-rpc-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<std::unique_ptr<Server>> start(std::vector<std::unique_ptr<grpc::Service>> services = {}) {
    ServerOptions options;
    options.run_dir = folder_;
    options.name = "gpu-worker";
    options.config_hash = "abc";
    options.status = [](v1::GetStatusResponse& response) {
      response.set_state(v1::PROCESS_STATE_DEGRADED);
      response.set_detail("no cache manager");
    };
    options.metrics = std::make_shared<obs::Metrics>(obs::Labels{});
    options.metrics->counter("things_total", "Things.").Increment(3);
    return Server::start(std::move(options), std::move(services));
  }

  grpc::Status get_status(v1::GetStatusResponse& response, bool wait_for_ready = true) {
    auto stub = v1::Process::NewStub(connect(folder_, "gpu-worker"));
    grpc::ClientContext context;
    context.set_wait_for_ready(wait_for_ready);
    set_deadline(context, 20s);
    return stub->GetStatus(&context, {}, &response);
  }

  std::string folder_;
};

TEST_F(RpcServer, AnswersWhoItIsAndHowItDoes) {
  auto server = start();
  ASSERT_TRUE(server.has_value()) << server.error().message();
  v1::GetStatusResponse response;
  ASSERT_TRUE(get_status(response).ok());
  EXPECT_EQ(response.name(), "gpu-worker");
  EXPECT_EQ(response.pid(), static_cast<uint32_t>(::getpid()));
  EXPECT_EQ(response.instance_id(), (*server)->instance_id());
  EXPECT_EQ(response.state(), v1::PROCESS_STATE_DEGRADED);
  EXPECT_EQ(response.detail(), "no cache manager");
  EXPECT_EQ(response.config_hash(), "abc");
}

TEST_F(RpcServer, HandsOutItsMetrics) {
  auto server = start();
  ASSERT_TRUE(server.has_value());
  auto stub = v1::Process::NewStub(connect(folder_, "gpu-worker"));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  set_deadline(context, 20s);
  v1::GetMetricsResponse response;
  ASSERT_TRUE(stub->GetMetrics(&context, {}, &response).ok());
  EXPECT_THAT(obs::Metrics::to_text(from_proto(response)), HasSubstr("things_total 3"));
  EXPECT_EQ(response.instance_id(), (*server)->instance_id());
}

TEST_F(RpcServer, RemovesAStaleSocketButNotALivingOne) {
  std::string path = socket_path(folder_, "gpu-worker");
  {
    sys::FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_TRUE(fs::exists(path)) << "left over";
  auto first = start();
  ASSERT_TRUE(first.has_value()) << first.error().message();
  auto second = start();
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  v1::GetStatusResponse response;
  EXPECT_TRUE(get_status(response).ok()) << "the first one still answers";
}

TEST_F(RpcServer, LeavesAFileAloneThatIsNoSocket) {
  std::ofstream(socket_path(folder_, "gpu-worker")) << "precious";
  auto server = start();
  ASSERT_FALSE(server.has_value());
  EXPECT_TRUE(fs::exists(socket_path(folder_, "gpu-worker")));
}

TEST_F(RpcServer, RefusesAPathTooLongForASocket) {
  std::string long_folder = folder_ + "/" + std::string(100, 'x');
  fs::create_directory(long_folder);
  ServerOptions options;
  options.run_dir = long_folder;
  options.name = "gpu-worker";
  auto server = Server::start(std::move(options), {});
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(server.error().message(), HasSubstr("shorter --run-dir"));
}

TEST_F(RpcServer, StopsWithOpenCallsAndRemovesItsSocket) {
  auto hub = std::make_unique<HoldingHub>();
  auto attached = hub->attached.get_future();
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::move(hub));
  auto server = start(std::move(services));
  ASSERT_TRUE(server.has_value());

  auto stub = v1::ExpertHub::NewStub(connect(folder_, "gpu-worker"));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  set_deadline(context, 60s);
  auto reader = stub->Attach(&context, {});
  ASSERT_EQ(attached.wait_for(20s), std::future_status::ready);
  auto begin = std::chrono::steady_clock::now();
  (*server)->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  v1::AttachExpertsResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_FALSE(reader->Finish().ok());
  EXPECT_FALSE(fs::exists(socket_path(folder_, "gpu-worker")));
}

TEST_F(RpcServer, IsFoundAgainByAnOldChannelAfterARestart) {
  auto channel = connect(folder_, "gpu-worker");
  auto stub = v1::Process::NewStub(channel);
  for (int round = 0; round < 3; ++round) {
    auto server = start();
    ASSERT_TRUE(server.has_value()) << server.error().message();
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    set_deadline(context, 20s);
    v1::GetStatusResponse response;
    EXPECT_TRUE(stub->GetStatus(&context, {}, &response).ok()) << round;
  }
  grpc::ClientContext context;
  set_deadline(context, 20s);
  v1::GetStatusResponse response;
  EXPECT_EQ(from_grpc(stub->GetStatus(&context, {}, &response)).code(), Code::kUnavailable)
      << "nobody is there";
}

}  // namespace
}  // namespace strata::rpc
