#include "services/cli/routing_recorder.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "services/cli/cluster_client.h"
#include "services/rpc/server.h"
#include "strata/v1/routing.grpc.pb.h"

namespace strata::cli {

using residency::RoutingTrace;
using residency::TokenRole;

TraceAssembly::TraceAssembly(const v1::RoutingShape& shape) {
  trace_.layers = shape.layers();
  trace_.experts = shape.experts();
  trace_.used = shape.used();
}

Status TraceAssembly::add(const v1::RecordRoutingResponse& message) {
  const int rows = message.tokens_size();
  const std::size_t picks = std::size_t{trace_.layers} * trace_.used;
  if (message.sequences_size() != rows || message.positions_size() != rows || message.prompt_size() != rows ||
      message.experts().size() != static_cast<std::size_t>(rows) * picks * sizeof(uint16_t)) {
    return fail(Code::kDataLoss, "a message of {} rows has {} bytes of experts, expected {}", rows,
                message.experts().size(), static_cast<std::size_t>(rows) * picks * sizeof(uint16_t));
  }
  dropped_rows_ += message.dropped_rows();
  for (int row = 0; row < rows; ++row) {
    const uint32_t sequence = message.sequences(row);
    // Of the running ones: from the end.
    const auto known = std::ranges::find(sequences_.rbegin(), sequences_.rend(), sequence);
    std::size_t at = static_cast<std::size_t>(sequences_.rend() - known) - 1;
    if (known == sequences_.rend()) {
      at = sequences_.size();
      sequences_.push_back(sequence);
      trace_.conversations.emplace_back();
    }
    RoutingTrace::Conversation& conversation = trace_.conversations[at];
    conversation.tokens.push_back(message.tokens(row));
    conversation.roles.push_back(message.prompt(row) ? TokenRole::kPrompt : TokenRole::kGenerated);
    conversation.domains.push_back(0);
    const std::size_t first = conversation.picks.size();
    conversation.picks.resize(first + picks);
    std::memcpy(conversation.picks.data() + first,
                message.experts().data() + static_cast<std::size_t>(row) * picks * sizeof(uint16_t),
                picks * sizeof(uint16_t));
  }
  return {};
}

struct RoutingRecorder::Impl {
  std::unique_ptr<v1::Routing::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::RecordRoutingResponse>> reader;
  std::string model_fingerprint;
  std::unique_ptr<TraceAssembly> assembly;  // the reading thread's, until it has been joined
  Status status;                            // likewise
  std::thread thread;

  void read() {
    v1::RecordRoutingResponse message;
    while (reader->Read(&message)) {
      status = assembly->add(message);
      if (!status.ok()) context.TryCancel();
    }
    const grpc::Status finished = reader->Finish();
    if (status.ok() && !finished.ok()) status = rpc::from_grpc(finished);
  }
};

RoutingRecorder::RoutingRecorder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RoutingRecorder::~RoutingRecorder() {
  impl_->context.TryCancel();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Result<std::unique_ptr<RoutingRecorder>> RoutingRecorder::begin(const std::string& run_dir) {
  auto impl = std::make_unique<Impl>();
  impl->stub = v1::Routing::NewStub(rpc::connect(run_dir, "gpu-worker"));
  // No deadline: it lasts as long as it is wanted, and ends with either side.
  impl->reader = impl->stub->RecordRouting(&impl->context, v1::RecordRoutingRequest());
  v1::RecordRoutingResponse first;
  if (!impl->reader->Read(&first) || !first.has_shape())
    return tl::unexpected(rpc::from_grpc(impl->reader->Finish()));
  impl->model_fingerprint = first.shape().model_fingerprint();
  impl->assembly = std::make_unique<TraceAssembly>(first.shape());
  impl->thread = std::thread([reading = impl.get()] { reading->read(); });
  return std::unique_ptr<RoutingRecorder>(new RoutingRecorder(std::move(impl)));
}

Result<RecordedRouting> RoutingRecorder::end() {
  grpc::ClientContext context;
  rpc::set_deadline(context, kQuestionTimeout);
  v1::StopRecordingResponse response;
  const grpc::Status stopped = impl_->stub->StopRecording(&context, v1::StopRecordingRequest(), &response);
  if (!stopped.ok()) impl_->context.TryCancel();
  impl_->thread.join();
  if (!impl_->status.ok() || !stopped.ok()) {
    return fail(Code::kAborted, "the recording broke off: {}",
                impl_->status.ok() ? stopped.error_message() : impl_->status.message());
  }
  return RecordedRouting{.model_fingerprint = std::move(impl_->model_fingerprint),
                         .trace = impl_->assembly->trace(),
                         .dropped_rows = impl_->assembly->dropped_rows()};
}

}  // namespace strata::cli
