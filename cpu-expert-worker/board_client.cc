#include "cpu-expert-worker/board_client.h"

#include <chrono>
#include <utility>

#include "services/obs/log.h"
#include "services/rpc/server.h"
#include "services/sys/cpus.h"

namespace strata::cpu_expert_worker {
namespace {

constexpr std::chrono::milliseconds kRetryPause{100};
// After a refusal (another model, a full /dev/shm): each try is a line in the gpu-worker's log.
constexpr std::chrono::milliseconds kRefusedPause{2000};

}  // namespace

BoardClient::BoardClient(BoardClientOptions options)
    : options_(std::move(options)),
      stub_(v1::ExpertHub::NewStub(options_.channel)),
      leader_([this] { run(); }) {}

BoardClient::~BoardClient() {
  {
    std::lock_guard lock(mutex_);
    stopping_.store(true);
    if (call_ != nullptr) call_->TryCancel();
  }
  stop_asked_.notify_all();
  leader_.join();
}

std::string BoardClient::detail() const {
  std::lock_guard lock(mutex_);
  return detail_;
}

void BoardClient::set_detail(const std::string& detail) {
  std::lock_guard lock(mutex_);
  if (detail_ == detail) return;  // one log line per change, not ten a second
  detail_ = detail;
  if (!detail.empty()) obs::info("experts", "{}", detail);
}

bool BoardClient::pause(std::chrono::milliseconds length) {
  std::unique_lock lock(mutex_);
  return !stop_asked_.wait_for(lock, length, [this] { return stopping_.load(); });
}

void BoardClient::run() {
  sys::name_this_thread("expert-0");
  for (;;) {
    const Status status = attach_and_serve();
    attached_.store(false, std::memory_order_relaxed);
    if (stopping_.load()) return;
    // It starts, restarts, or has just taken the board back; gRPC's own words for that help nobody.
    const bool expected = status.code() == Code::kUnavailable;
    set_detail(expected ? "waiting for the gpu-worker" : fmt::format("not attached: {}", status.message()));
    if (!pause(expected ? kRetryPause : kRefusedPause)) return;
  }
}

Status BoardClient::attach_and_serve() {
  grpc::ClientContext context;
  {
    std::lock_guard lock(mutex_);
    if (stopping_.load()) return Status(Code::kCancelled, "stopping");
    call_ = &context;
  }
  auto stream = stub_->Attach(&context, options_.request);
  v1::AttachExpertsResponse board;
  Status served;
  if (stream->Read(&board)) {
    // The stream says nothing more; it ends when the board must not be served any more.
    std::atomic<bool> ended{false};
    std::thread watcher([&] {
      v1::AttachExpertsResponse ignored;
      while (stream->Read(&ignored)) {
      }
      ended.store(true, std::memory_order_relaxed);
    });
    served = serve_board(board, [&] {
      return ended.load(std::memory_order_relaxed) || stopping_.load(std::memory_order_relaxed);
    });
    if (!ended.load(std::memory_order_relaxed)) context.TryCancel();
    watcher.join();
  }
  const Status ended = rpc::from_grpc(stream->Finish());
  {
    std::lock_guard lock(mutex_);
    call_ = nullptr;
  }
  if (!served.ok()) return served;
  return ended.ok() ? Status(Code::kUnavailable, "the gpu-worker retired the board") : ended;
}

Status BoardClient::serve_board(const v1::AttachExpertsResponse& response,
                                const std::function<bool()>& stop) {
  TRY(auto board, shm::Board::attach(response.segment(), response.segment_bytes(), response.instance_id()));
  attached_.store(true, std::memory_order_relaxed);
  set_detail("");
  obs::info("experts", "serving {}", response.segment());
  return options_.server->serve(board, stop);
}

}  // namespace strata::cpu_expert_worker
