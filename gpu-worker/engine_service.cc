#include "gpu-worker/engine_service.h"

#include <utility>
#include <variant>

#include "services/obs/log.h"
#include "services/rpc/server.h"
#include "services/rpc/stream_writer.h"

namespace strata::gpu_worker {

namespace {

v1::ReuseSource source_of(ReuseSource source) {
  switch (source) {
    case ReuseSource::kNone:
      break;
    case ReuseSource::kLive:
      return v1::REUSE_SOURCE_LIVE;
    case ReuseSource::kCheckpoint:
      return v1::REUSE_SOURCE_CHECKPOINT;
    case ReuseSource::kRam:
      return v1::REUSE_SOURCE_RAM;
    case ReuseSource::kDisk:
      return v1::REUSE_SOURCE_DISK;
  }
  return v1::REUSE_SOURCE_UNSPECIFIED;
}

v1::FinishReason to_proto(EndReason reason) {
  switch (reason) {
    case EndReason::kEndToken:
      return v1::FINISH_REASON_END_TOKEN;
    case EndReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case EndReason::kContext:
      return v1::FINISH_REASON_CONTEXT;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

// The stream of one answer, listening to its generation.
class GenerateStream final : public rpc::StreamWriter<v1::GenerateResponse>, public GenerationListener {
 public:
  // Between open() and the end of the handler; the listener of the generation is this stream.
  void watch(std::shared_ptr<Generation> generation) { generation_ = std::move(generation); }

  void on_event(GenerationEvent event) override {
    std::visit([this](auto& each) { write(each); }, event);
  }

 private:
  // The window loop answers with kCancelled at the next window boundary, which ends the stream.
  void on_cancelled() override {
    if (auto generation = generation_.lock()) generation->cancel();
  }

  void write(const PromptProgressed& progressed) {
    v1::GenerateResponse response;
    v1::PromptProgress& progress = *response.mutable_progress();
    progress.set_total(progressed.total);
    progress.set_cached(progressed.cached);
    progress.set_processed(progressed.processed);
    progress.set_kept(progressed.kept);
    send(std::move(response));
  }
  void write(const TokenChosen& chosen) {
    v1::GenerateResponse response;
    v1::Token& token = *response.mutable_token();
    token.set_id(chosen.token.id);
    token.set_index(chosen.index);
    token.set_logprob(chosen.token.logprob);
    for (const auto& [id, logprob] : chosen.token.top) {
      v1::TokenLogprob& top = *token.add_top();
      top.set_id(id);
      top.set_logprob(logprob);
    }
    send(std::move(response));
  }
  void write(const GenerationEnded& ended) {
    v1::GenerateResponse response;
    v1::Finished& finished = *response.mutable_finished();
    finished.set_reason(to_proto(ended.reason));
    finished.set_end_token(ended.end_token);
    finished.set_prompt_tokens_computed(ended.prompt_tokens_computed);
    finished.set_prompt_tokens_reused(ended.prompt_tokens_reused);
    finished.set_source(source_of(ended.source));
    finished.set_not_restored(ended.not_restored);
    finished.set_generated_tokens(ended.generated_tokens);
    finished.set_prefill_seconds(ended.prefill_seconds);
    finished.set_decode_seconds(ended.decode_seconds);
    send(std::move(response));
    finish(grpc::Status::OK);
  }
  void write(const Status& status) {
    if (status.code() == Code::kInternal) obs::error("engine", "{} ({})", status.message(), status.where());
    finish(rpc::to_grpc(status));
  }

  std::weak_ptr<Generation> generation_;  // the loop owns it, and it owns this stream
};

}  // namespace

EngineService::EngineService(EngineServiceOptions options) : options_(std::move(options)) {}

grpc::ServerUnaryReactor* EngineService::GetEngine(grpc::CallbackServerContext* context,
                                                   const v1::GetEngineRequest* /*request*/,
                                                   v1::GetEngineResponse* response) {
  *response = options_.facts;
  response->set_sequences_running(
      options_.loop->counters().sequences_running.load(std::memory_order_relaxed));
  if (options_.fill) options_.fill(*response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<v1::GenerateResponse>* EngineService::Generate(
    grpc::CallbackServerContext* /*context*/, const v1::GenerateRequest* request) {
  auto stream = std::make_shared<GenerateStream>();
  stream->open();
  Result<GenerationRequest> read = read_generate_request(*request, options_.limits);
  if (!read) {
    stream->finish(rpc::to_grpc(read.error()));
    return stream.get();
  }
  auto generation = std::make_shared<Generation>(std::move(*read), stream);
  stream->watch(generation);
  const auto submit = [loop = options_.loop, stream, generation](Status ready) {
    if (ready.ok()) ready = loop->submit(generation);
    if (!ready.ok()) stream->finish(rpc::to_grpc(ready));
  };
  if (generation->request().constraint.any()) {
    options_.constraints->constrain(generation, submit);
  } else {
    submit({});
  }
  return stream.get();
}

}  // namespace strata::gpu_worker
