#include "gpu-worker/expert_hub_service.h"

#include <utility>

#include "services/obs/log.h"
#include "services/rpc/server.h"

namespace strata::gpu_worker {
namespace {

// One open Attach call. It ends in one of two ways: the board is retired (from any thread, the window loop's
// included), or the client goes away. gRPC's OnDone is the last thing that happens to it; a retirement that
// comes later finds the weak pointer dead or the call finished.
class AttachStream final : public grpc::ServerWriteReactor<v1::AttachExpertsResponse>,
                           public std::enable_shared_from_this<AttachStream> {
 public:
  explicit AttachStream(ExpertWorkers& workers) : workers_(workers) {}

  void start(const v1::AttachExpertsRequest& request) {
    keep_alive_ = shared_from_this();
    name_ = request.worker();
    auto attached = workers_.attach(name_, request.pid(), [weak = weak_from_this()] {
      if (auto stream = weak.lock()) stream->finish(Status());
    });
    if (!attached) {
      obs::warn("experts", "{} refused: {}", name_, attached.error().message());
      return finish(attached.error());
    }
    worker_ = std::move(*attached);
    obs::info("experts", "{} (process {}, {} threads) attached", name_, request.pid(), request.threads());
    const shm::Segment& segment = worker_->board.segment();
    response_.set_segment(segment.name());
    response_.set_segment_bytes(segment.bytes());
    response_.set_instance_id(segment.instance_id());
    StartWrite(&response_);
  }

  void finish(const Status& status) {
    if (!finished_.exchange(true)) Finish(rpc::to_grpc(status));
  }

 private:
  void OnWriteDone(bool ok) override {
    if (!ok) finish(Status(Code::kUnavailable, "the client is gone"));
  }
  void OnCancel() override { finish(Status(Code::kCancelled, "the client is gone")); }
  void OnDone() override {
    if (worker_ != nullptr) obs::warn("experts", "{} detached: {}", name_, workers_.detach(worker_));
    // Not before this function ends: it is a member of what the pointer keeps alive.
    const std::shared_ptr<AttachStream> last = std::move(keep_alive_);
  }

  ExpertWorkers& workers_;
  std::string name_;
  std::shared_ptr<AttachedWorker> worker_;
  v1::AttachExpertsResponse response_;
  std::atomic<bool> finished_{false};
  std::shared_ptr<AttachStream> keep_alive_;
};

// A call that is refused before anything was made for it.
class RefusedAttach final : public grpc::ServerWriteReactor<v1::AttachExpertsResponse> {
 public:
  explicit RefusedAttach(const Status& status) { Finish(rpc::to_grpc(status)); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

ExpertHubService::ExpertHubService(ExpertWorkers& workers, std::string model_fingerprint)
    : workers_(workers), model_fingerprint_(std::move(model_fingerprint)) {}

Status ExpertHubService::check(const v1::AttachExpertsRequest& request) const {
  if (request.worker().empty()) return fail(Code::kInvalidArgument, "worker: a name is needed");
  if (request.board_layout_version() != shm::kBoardLayoutVersion) {
    return fail(Code::kFailedPrecondition,
                "{} speaks board layout {}, this gpu-worker {}: programs of different versions",
                request.worker(), request.board_layout_version(), shm::kBoardLayoutVersion);
  }
  if (request.model_fingerprint() != model_fingerprint_) {
    return fail(Code::kFailedPrecondition,
                "{} has model {}, this gpu-worker {}: the file was replaced; restart both", request.worker(),
                request.model_fingerprint(), model_fingerprint_);
  }
  return {};
}

grpc::ServerWriteReactor<v1::AttachExpertsResponse>* ExpertHubService::Attach(
    grpc::CallbackServerContext*, const v1::AttachExpertsRequest* request) {
  if (Status status = check(*request); !status.ok()) {
    obs::warn("experts", "refused: {}", status.message());
    return new RefusedAttach(status);
  }
  auto stream = std::make_shared<AttachStream>(workers_);
  stream->start(*request);
  return stream.get();
}

}  // namespace strata::gpu_worker
