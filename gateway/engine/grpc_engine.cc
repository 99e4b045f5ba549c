#include "gateway/engine/grpc_engine.h"

#include "services/rpc/open_calls.h"
#include "services/rpc/snapshot_words.h"
#include "strata/v1/engine.grpc.pb.h"
#include "strata/v1/process.grpc.pb.h"

namespace strata::gateway {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPollTimeout{5000};
// Long enough for any answer; the client's leaving and the engine's watchdog end a call much earlier.
constexpr milliseconds kGenerateTimeout{std::chrono::hours(24)};

std::optional<Source> from_proto(v1::ReuseSource source) {
  switch (source) {
    case v1::REUSE_SOURCE_LIVE:
      return Source::kLive;
    case v1::REUSE_SOURCE_CHECKPOINT:
      return Source::kCheckpoint;
    case v1::REUSE_SOURCE_RAM:
      return Source::kRam;
    case v1::REUSE_SOURCE_DISK:
      return Source::kDisk;
    default:
      return {};  // nothing was reused, or a newer engine's
  }
}

v1::GenerateRequest to_proto(GenerateCall call) {
  v1::GenerateRequest out;
  out.set_request_id(std::move(call.request_id));
  out.mutable_prompt_tokens()->Add(call.prompt_tokens.begin(), call.prompt_tokens.end());
  out.mutable_generated_tokens()->Add(call.generated_tokens.begin(), call.generated_tokens.end());
  v1::Sampling& sampling = *out.mutable_sampling();
  sampling.set_temperature(call.sampling.temperature);
  sampling.set_top_k(call.sampling.top_k);
  sampling.set_top_p(call.sampling.top_p);
  sampling.set_min_p(call.sampling.min_p);
  sampling.set_repetition_penalty(call.sampling.repetition_penalty);
  sampling.set_presence_penalty(call.sampling.presence_penalty);
  sampling.set_frequency_penalty(call.sampling.frequency_penalty);
  sampling.set_penalty_last_n(call.sampling.penalty_last_n);
  sampling.set_seed(call.sampling.seed);
  for (const auto& [token, bias] : call.sampling.logit_bias) {
    v1::LogitBias& entry = *sampling.add_logit_bias();
    entry.set_token(token);
    entry.set_bias(bias);
  }
  sampling.set_logprobs(call.sampling.logprobs);
  sampling.set_top_logprobs(call.sampling.top_logprobs);
  out.set_max_tokens(call.max_tokens);
  out.mutable_end_tokens()->Add(call.end_tokens.begin(), call.end_tokens.end());
  out.set_answer_checkpoint_tokens(call.answer_checkpoint_tokens);
  for (const CheckpointPosition& wish : call.checkpoints) {
    v1::Checkpoint& checkpoint = *out.add_checkpoints();
    checkpoint.set_prompt_tokens(wish.position);
    checkpoint.set_kind(rpc::to_wire(wish.kind));
  }
  out.set_name_space(call.name_space.bytes());
  out.set_shared_prompt_tokens(call.shared_prompt_tokens);
  if (call.parked) {
    out.set_parked_id(call.parked->id.bytes());
    out.set_parked_tokens(call.parked->tokens);
  }
  if (call.constraint) {
    out.mutable_constraint()->set_gbnf(std::move(call.constraint->gbnf));
    out.mutable_constraint()->set_prompt_tokens(call.constraint->prompt_tokens);
  }
  if (call.thinking_end) {
    out.set_thinking_end(*call.thinking_end);
    out.set_thinking_tokens_max(call.thinking_tokens_max);
    if (call.thinking_begin) out.set_thinking_begin(*call.thinking_begin);
  }
  return out;
}

GeneratedToken from_proto(const v1::Token& token) {
  GeneratedToken out{.id = token.id(), .index = token.index(), .logprob = token.logprob()};
  for (const auto& top : token.top()) out.top.emplace_back(top.id(), top.logprob());
  return out;
}

EngineFinished from_proto(const v1::Finished& finished) {
  EngineFinished out{.end_token = finished.end_token(),
                     .prompt_tokens_reused = finished.prompt_tokens_reused(),
                     .source = from_proto(finished.source()),
                     .not_restored = finished.not_restored()};
  switch (finished.reason()) {
    case v1::FINISH_REASON_LENGTH:
      out.reason = EngineFinished::Reason::kLength;
      break;
    case v1::FINISH_REASON_CONTEXT:
      out.reason = EngineFinished::Reason::kContext;
      break;
    default:
      out.reason = EngineFinished::Reason::kEndToken;
  }
  return out;
}

EngineInfo from_proto(const v1::GetEngineResponse& response) {
  EngineInfo info{.context_tokens = response.context_tokens(),
                  .sequences_max = response.sequences_max(),
                  .prefill_chunk_tokens = response.prefill_chunk_tokens(),
                  .captures_within_windows = response.captures_within_windows()};
  info.degraded.assign(response.degraded().begin(), response.degraded().end());
  return info;
}

// Keeps itself alive until gRPC has said that the call is over.
class GrpcCall final : public EngineCall,
                       public grpc::ClientReadReactor<v1::GenerateResponse>,
                       public std::enable_shared_from_this<GrpcCall> {
 public:
  GrpcCall(GenerateCall call, std::shared_ptr<grpc::ClientContext> context,
           std::function<void(EngineEvent)> on_event)
      : request_(to_proto(std::move(call))), context_(std::move(context)), on_event_(std::move(on_event)) {}

  void start(v1::Engine::Stub& stub) {
    self_ = shared_from_this();
    stub.async()->Generate(context_.get(), &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void cancel() override { context_->TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    switch (response_.event_case()) {
      case v1::GenerateResponse::kProgress: {
        const auto& progress = response_.progress();
        on_event_(PromptProgress{.total = progress.total(),
                                 .cached = progress.cached(),
                                 .processed = progress.processed(),
                                 .kept = progress.kept()});
        break;
      }
      case v1::GenerateResponse::kToken:
        on_event_(from_proto(response_.token()));
        break;
      case v1::GenerateResponse::kFinished:
        on_event_(from_proto(response_.finished()));
        break;
      case v1::GenerateResponse::EVENT_NOT_SET:
        break;  // of a newer engine
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    on_event_(EngineEnded{rpc::from_grpc(status)});
    on_event_ = nullptr;
    auto last = std::move(self_);
  }

 private:
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  std::shared_ptr<grpc::ClientContext> context_;
  std::function<void(EngineEvent)> on_event_;
  std::shared_ptr<GrpcCall> self_;
};

// One look at the engine: first how the process does, then, when it is ready, what it offers.
struct Look {
  std::shared_ptr<grpc::ClientContext> status_context, engine_context;
  v1::GetStatusRequest status_request;
  v1::GetStatusResponse status;
  v1::GetEngineRequest engine_request;
  v1::GetEngineResponse engine;
  std::function<void(EngineState)> done;
};

class GrpcEngine final : public EngineClient {
 public:
  explicit GrpcEngine(const std::string& run_dir)
      : channel_(rpc::connect(run_dir, "gpu-worker")),
        process_(v1::Process::NewStub(channel_)),
        engine_(v1::Engine::NewStub(channel_)) {}

  void poll(std::function<void(EngineState)> done) override {
    auto look = std::make_shared<Look>();
    look->done = std::move(done);
    look->status_context = calls_.open(kPollTimeout);
    look->engine_context = calls_.open(kPollTimeout);
    process_->async()->GetStatus(look->status_context.get(), &look->status_request, &look->status,
                                 [this, look](const grpc::Status& status) { on_status(look, status); });
  }

  std::shared_ptr<EngineCall> generate(GenerateCall call,
                                       std::function<void(EngineEvent)> on_event) override {
    auto started =
        std::make_shared<GrpcCall>(std::move(call), calls_.open(kGenerateTimeout), std::move(on_event));
    started->start(*engine_);
    return started;
  }

 private:
  void on_status(const std::shared_ptr<Look>& look, const grpc::Status& status) {
    if (!status.ok()) return look->done({});
    const auto state = look->status.state();
    if (state != v1::PROCESS_STATE_READY && state != v1::PROCESS_STATE_DEGRADED) {
      EngineState loading{.phase = EngineState::Phase::kLoading, .progress = look->status.progress()};
      if (state == v1::PROCESS_STATE_DRAINING) loading = {};
      return look->done(std::move(loading));
    }
    engine_->async()->GetEngine(
        look->engine_context.get(), &look->engine_request, &look->engine, [look](const grpc::Status& answer) {
          if (!answer.ok()) return look->done({});
          look->done({.phase = EngineState::Phase::kReady, .progress = 1, .info = from_proto(look->engine)});
        });
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Process::Stub> process_;
  std::unique_ptr<v1::Engine::Stub> engine_;
  rpc::OpenCalls calls_;  // last: goes first, and waits for the calls that use the stubs
};

}  // namespace

std::unique_ptr<EngineClient> make_grpc_engine(const std::string& run_dir) {
  return std::make_unique<GrpcEngine>(run_dir);
}

}  // namespace strata::gateway
