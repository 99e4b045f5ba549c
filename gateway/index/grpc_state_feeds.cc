#include "gateway/index/grpc_state_feeds.h"

#include <utility>

#include "gateway/index/state_messages.h"
#include "services/rpc/open_calls.h"
#include "strata/v1/snapshots.grpc.pb.h"
#include "strata/v1/states.grpc.pb.h"

namespace strata::gateway {

namespace {

// Every call has a deadline. When this one is over all states are listed again.
constexpr std::chrono::milliseconds kWatchTimeout{std::chrono::hours(24)};

struct States {
  using Service = v1::States;
  using Request = v1::WatchStatesRequest;
  using Response = v1::WatchStatesResponse;
  using Reader = StatesReader;
};

struct Snapshots {
  using Service = v1::Snapshots;
  using Request = v1::WatchSnapshotsRequest;
  using Response = v1::WatchSnapshotsResponse;
  using Reader = SnapshotsReader;
};

// Keeps itself alive until gRPC has said that the stream is over.
template <class Kind>
class WatchCall final : public grpc::ClientReadReactor<typename Kind::Response>,
                        public std::enable_shared_from_this<WatchCall<Kind>> {
 public:
  WatchCall(std::shared_ptr<grpc::ClientContext> context, std::function<void(FeedEvent)> on_event)
      : context_(std::move(context)), on_event_(std::move(on_event)) {}

  void start(typename Kind::Service::Stub& stub) {
    self_ = this->shared_from_this();
    stub.async()->Watch(context_.get(), &request_, this);
    this->StartRead(&response_);
    this->StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    auto event = reader_.read(response_);
    if (!event) {
      fault_ = std::move(event).error();
      return context_->TryCancel();
    }
    if (*event) on_event_(std::move(**event));
    this->StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    on_event_(FeedEnded{fault_.ok() ? rpc::from_grpc(status) : std::move(fault_)});
    on_event_ = nullptr;
    auto last = std::move(self_);
  }

 private:
  typename Kind::Request request_;
  typename Kind::Response response_;
  typename Kind::Reader reader_;
  std::shared_ptr<grpc::ClientContext> context_;
  std::function<void(FeedEvent)> on_event_;
  Status fault_;  // of the peer's messages
  std::shared_ptr<WatchCall> self_;
};

template <class Kind>
class GrpcFeed final : public StateFeed {
 public:
  explicit GrpcFeed(std::shared_ptr<grpc::Channel> channel) : stub_(Kind::Service::NewStub(channel)) {}

  void watch(std::function<void(FeedEvent)> on_event) override {
    auto call = std::make_shared<WatchCall<Kind>>(calls_.open(kWatchTimeout), std::move(on_event));
    call->start(*stub_);
  }

 private:
  std::unique_ptr<typename Kind::Service::Stub> stub_;
  rpc::OpenCalls calls_;  // last: goes first, and waits for the calls that use the stub
};

}  // namespace

std::unique_ptr<StateFeed> make_engine_feed(const std::string& run_dir) {
  return std::make_unique<GrpcFeed<States>>(rpc::connect(run_dir, "gpu-worker"));
}

std::unique_ptr<StateFeed> make_store_feed(const std::string& run_dir) {
  return std::make_unique<GrpcFeed<Snapshots>>(rpc::connect(run_dir, "cache-manager"));
}

}  // namespace strata::gateway
