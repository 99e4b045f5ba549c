#include "gpu-worker/routing_service.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "services/obs/log.h"
#include "services/rpc/server.h"
#include "services/rpc/stream_writer.h"

namespace strata::gpu_worker {

namespace {

constexpr uint64_t kMessageBytes = uint64_t{256} << 10;  // of rows in one message
// Messages that wait for the reader beside the ring.
constexpr std::size_t kMessagesWaitingMax = 4;

v1::RecordRoutingResponse to_proto(const RoutingLog::Taken& taken) {
  v1::RecordRoutingResponse message;
  for (const RoutedRow& row : taken.rows) {
    message.add_sequences(row.sequence);
    message.add_positions(row.position);
    message.add_tokens(row.token);
    message.add_prompt(row.is_prompt);
  }
  message.set_experts(taken.experts.data(), taken.experts.size() * sizeof(uint16_t));
  message.set_dropped_rows(taken.dropped);
  return message;
}

}  // namespace

// Who records. Outlives the service, because streams that are on their way refer to it.
struct RoutingService::Holder {
  WindowLoop* loop = nullptr;
  std::mutex mutex;
  std::shared_ptr<Recording> recording;  // null: nobody

  bool forget(const std::shared_ptr<Recording>& which) {
    std::lock_guard lock(mutex);
    if (recording != which) return false;
    recording = nullptr;
    return true;
  }
};

class RoutingService::Recording final : public rpc::StreamWriter<v1::RecordRoutingResponse> {
 public:
  explicit Recording(std::shared_ptr<Holder> holder) : holder_(std::move(holder)) {}

  std::shared_ptr<Recording> self() { return std::static_pointer_cast<Recording>(shared_from_this()); }
  const std::shared_ptr<RoutingLog>& log() const { return log_; }

  void make_log(const RoutingServiceOptions& options) {
    const uint64_t rows = options.log_bytes / options.shape.row_bytes();
    log_ = std::make_shared<RoutingLog>(options.shape, static_cast<uint32_t>(std::max<uint64_t>(rows, 1)),
                                        [stream = std::weak_ptr(self())] {
                                          if (const auto open = stream.lock()) open->drain();
                                        });
  }

  // Sends what the ring holds, as far as the reader keeps up. Any thread; whoever comes while another one
  // drains makes that one go round again.
  void drain() {
    if (asked_.fetch_add(1) > 0) return;
    uint32_t answered = 1;
    do {
      send_rows();
      answered = asked_.fetch_sub(answered) - answered;
    } while (answered > 0);
  }
  // Nothing is added any more: the rest goes out, then the stream ends.
  void end() {
    ending_.store(true);
    drain();
  }

 private:
  void send_rows() {
    const auto rows_max =
        static_cast<uint32_t>(std::max<uint64_t>(kMessageBytes / log_->shape().row_bytes(), 1));
    while (waiting() < kMessagesWaitingMax) {
      const bool ending = ending_.load();  // before the look: what was added before the end is in it
      const RoutingLog::Taken taken = log_->take(rows_max);
      if (taken.rows.empty() && taken.dropped == 0) {
        if (ending) finish(grpc::Status::OK);
        return;
      }
      send(to_proto(taken));
    }
  }
  void on_written() override { drain(); }
  void on_cancelled() override {
    holder_->forget(self());
    // A full inbox does no harm: the ring fills up and nobody looks; the next recording takes its place.
    const Status ended = holder_->loop->end_recording(log_, [] {});
    if (ended.code() == Code::kResourceExhausted)
      obs::warn("routing", "the end of a recording was not applied: {}", ended.message());
    finish(grpc::Status(grpc::StatusCode::CANCELLED, "the reader has gone"));
  }

  std::shared_ptr<Holder> holder_;
  std::shared_ptr<RoutingLog> log_;
  std::atomic<uint32_t> asked_{0};
  std::atomic<bool> ending_{false};
};

RoutingService::RoutingService(RoutingServiceOptions options)
    : options_(std::move(options)), holder_(std::make_shared<Holder>()) {
  holder_->loop = options_.loop;
}

grpc::ServerWriteReactor<v1::RecordRoutingResponse>* RoutingService::RecordRouting(
    grpc::CallbackServerContext* /*context*/, const v1::RecordRoutingRequest* /*request*/) {
  auto recording = std::make_shared<Recording>(holder_);
  recording->open();
  recording->make_log(options_);
  {
    std::lock_guard lock(holder_->mutex);
    if (holder_->recording != nullptr) {
      recording->finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "another recording is running"));
      return recording.get();
    }
    holder_->recording = recording;
  }
  v1::RecordRoutingResponse first;
  v1::RoutingShape& shape = *first.mutable_shape();
  shape.set_model_fingerprint(options_.model_fingerprint);
  shape.set_layers(options_.shape.layers);
  shape.set_experts(options_.experts);
  shape.set_used(options_.shape.used);
  const Status begun = options_.loop->begin_recording(
      recording->log(), [recording, first = std::move(first)] { recording->send(first); });
  if (!begun.ok()) {
    holder_->forget(recording);
    recording->finish(rpc::to_grpc(begun));
  }
  return recording.get();
}

grpc::ServerUnaryReactor* RoutingService::StopRecording(grpc::CallbackServerContext* context,
                                                        const v1::StopRecordingRequest* /*request*/,
                                                        v1::StopRecordingResponse* /*response*/) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::shared_ptr<Recording> recording;
  {
    std::lock_guard lock(holder_->mutex);
    recording = holder_->recording;
  }
  if (recording == nullptr) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "nobody records"));
    return reactor;
  }
  const Status stopped = options_.loop->end_recording(recording->log(), [holder = holder_, recording] {
    holder->forget(recording);
    recording->end();
  });
  reactor->Finish(rpc::to_grpc(stopped));
  return reactor;
}

}  // namespace strata::gpu_worker
