#include "gateway/testing/fake_engine.h"

#include <atomic>
#include <mutex>
#include <thread>

#include "gateway/generation/test_tokenizer.h"
#include "gateway/testing/fake_states.h"
#include "gateway/testing/fake_store.h"
#include "services/rpc/server.h"
#include "strata/v1/engine.grpc.pb.h"

namespace strata::gateway::testing {

namespace {

constexpr std::chrono::milliseconds kLookInterval{2};

}  // namespace

struct FakeEngine::Impl {
  std::string run_dir;
  mutable std::mutex mutex;
  Script script;  // guarded, as the next
  std::vector<SeenCall> seen;
  std::atomic<bool> ready{true};
  std::atomic<uint32_t> sequences{2}, context{4096}, running{0}, cancelled{0};
  uint32_t prefill_chunk_tokens = 0;
  bool captures_within_windows = false;
  std::unique_ptr<FakeStates> states;
  uint64_t instance = 0;
  std::size_t kept_max = SIZE_MAX;
  FakeStore* store = nullptr;
  std::unique_ptr<rpc::Server> server;

  class Service;
  class StatesService;
};

class FakeEngine::Impl::StatesService final : public v1::States::Service {
 public:
  explicit StatesService(FakeStates* states) : states_(states) {}
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchStatesRequest*,
                     grpc::ServerWriter<v1::WatchStatesResponse>* writer) override {
    return states_->watch(*context, *writer);
  }

 private:
  FakeStates* states_;
};

class FakeEngine::Impl::Service final : public v1::Engine::Service {
 public:
  explicit Service(Impl* engine) : engine_(engine) {}

  grpc::Status GetEngine(grpc::ServerContext*, const v1::GetEngineRequest*,
                         v1::GetEngineResponse* response) override {
    response->set_context_tokens(engine_->context);
    response->set_captures_within_windows(engine_->captures_within_windows);
    response->set_prefill_chunk_tokens(engine_->prefill_chunk_tokens);
    response->set_sequences_max(engine_->sequences);
    return grpc::Status::OK;
  }

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    Script script;
    Sequence sequence = begin(*request);
    {
      std::scoped_lock lock(engine_->mutex);
      script = engine_->script;
      SeenCall seen{
          .prompt_tokens = {request->prompt_tokens().begin(), request->prompt_tokens().end()},
          .generated_tokens = {request->generated_tokens().begin(), request->generated_tokens().end()},
          .max_tokens = request->max_tokens(),
          .seed = request->sampling().seed(),
          .temperature = request->sampling().temperature(),
          .name_space = request->name_space(),
          .parked_id = request->parked_id(),
          .parked_tokens = request->parked_tokens(),
          .shared_prompt_tokens = request->shared_prompt_tokens(),
          .reused_tokens = sequence.reused};
      if (request->has_constraint()) {
        seen.gbnf = request->constraint().gbnf();
        seen.gbnf_prompt_tokens = request->constraint().prompt_tokens();
      }
      if (request->has_thinking_end()) seen.thinking_end = request->thinking_end();
      if (request->has_thinking_tokens_max()) seen.thinking_tokens_max = request->thinking_tokens_max();
      if (request->has_thinking_begin()) seen.thinking_begin = request->thinking_begin();
      for (const v1::Checkpoint& wish : request->checkpoints())
        seen.checkpoints.push_back(wish.prompt_tokens());
      if (engine_->seen.size() < engine_->kept_max) engine_->seen.push_back(std::move(seen));
    }
    ++engine_->running;
    const grpc::Status status = answer(*context, *request, script, sequence, *writer);
    if (status.error_code() != grpc::StatusCode::INTERNAL) {
      engine_->states->keep(std::span(sequence.tokens).first(sequence.read), request->name_space());
    }
    --engine_->running;
    if (status.error_code() == grpc::StatusCode::CANCELLED) ++engine_->cancelled;
    return status;
  }

 private:
  struct Sequence {
    std::vector<int32_t> tokens;  // prompt and answer so far
    std::size_t read = 0;         // of them
    uint32_t reused = 0;
    v1::ReuseSource source = v1::REUSE_SOURCE_UNSPECIFIED;
    std::string not_restored = {};
  };

  Sequence begin(const v1::GenerateRequest& request) const {
    Sequence sequence{.tokens = {request.prompt_tokens().begin(), request.prompt_tokens().end()}};
    sequence.tokens.insert(sequence.tokens.end(), request.generated_tokens().begin(),
                           request.generated_tokens().end());
    const FakeStates::Begun begun = engine_->states->begin(sequence.tokens, request.name_space());
    sequence.reused = begun.tokens;
    if (begun.tokens > 0) {
      sequence.source = begun.live ? v1::REUSE_SOURCE_LIVE : v1::REUSE_SOURCE_CHECKPOINT;
    }
    if (request.parked_tokens() > begun.tokens) {
      if (engine_->store != nullptr && engine_->store->holds(request.parked_id())) {
        sequence.reused = request.parked_tokens();
        sequence.source = v1::REUSE_SOURCE_RAM;
      } else {
        sequence.not_restored = "no such snapshot";
      }
    }
    sequence.read = sequence.reused;
    return sequence;
  }

  // Keeps the states that were asked for on the way.
  void read_up_to(std::size_t count, const v1::GenerateRequest& request, Sequence& sequence,
                  v1::PromptProgress& progress) const {
    for (const v1::Checkpoint& wish : request.checkpoints()) {
      if (wish.prompt_tokens() <= sequence.read || wish.prompt_tokens() > count) continue;
      engine_->states->checkpoint(std::span(sequence.tokens).first(wish.prompt_tokens()),
                                  request.name_space());
      progress.set_kept(wish.prompt_tokens());
    }
    sequence.read = std::max(sequence.read, count);
  }

  static bool wait(const grpc::ServerContext& context, std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (!context.IsCancelled() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(kLookInterval);
    return !context.IsCancelled();
  }

  grpc::Status answer(const grpc::ServerContext& context, const v1::GenerateRequest& request,
                      const Script& script, Sequence& sequence,
                      grpc::ServerWriter<v1::GenerateResponse>& writer) const {
    const grpc::Status given_up(grpc::StatusCode::CANCELLED, "given up");
    if (request.has_constraint() && !script.refuses.empty())
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, script.refuses);
    v1::GenerateResponse event;
    const auto prompt = static_cast<uint32_t>(request.prompt_tokens_size());
    const uint32_t reused = std::min(sequence.reused, prompt);
    event.mutable_progress()->set_total(prompt);
    event.mutable_progress()->set_cached(reused);
    read_up_to(reused + (prompt - reused) / 2, request, sequence, *event.mutable_progress());
    event.mutable_progress()->set_processed(
        static_cast<uint32_t>(std::min<std::size_t>(sequence.read, prompt)));
    if (!writer.Write(event) || !wait(context, script.prefill)) return given_up;
    read_up_to(sequence.tokens.size(), request, sequence, *event.mutable_progress());
    event.mutable_progress()->set_processed(prompt);
    if (!writer.Write(event)) return given_up;

    const std::vector<int32_t> text = test_tokenizer().encode_trusted(script.text);
    const std::size_t length = script.endless ? SIZE_MAX : text.size();
    auto index = static_cast<std::size_t>(request.generated_tokens_size());
    for (; index < std::min<std::size_t>(length, request.max_tokens()); ++index) {
      if (script.fails_after > 0 && index == script.fails_after) {
        return grpc::Status(grpc::StatusCode::INTERNAL, "the window failed");
      }
      if (script.quiet_after > 0 && index == script.quiet_after) {
        // Many may be waiting like this at a time.
        while (!context.IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(500));
        return given_up;
      }
      sequence.read = sequence.tokens.size();  // the token before
      sequence.tokens.push_back(text[index % text.size()]);
      event.mutable_token()->set_id(sequence.tokens.back());
      event.mutable_token()->set_index(static_cast<uint32_t>(index));
      if (!writer.Write(event) || !wait(context, script.per_token)) return given_up;
    }
    v1::Finished& finished = *event.mutable_finished();
    finished.set_reason(v1::FINISH_REASON_LENGTH);
    if (index == length) {  // the end token was chosen by reading all of the answer
      finished.set_reason(v1::FINISH_REASON_END_TOKEN);
      finished.set_end_token(request.end_tokens(0));
      sequence.tokens.push_back(request.end_tokens(0));
      sequence.read = sequence.tokens.size() - (script.end_token_read ? 0 : 1);
    }
    finished.set_prompt_tokens_computed(prompt - reused);
    finished.set_prompt_tokens_reused(reused);
    finished.set_source(sequence.source);
    finished.set_not_restored(sequence.not_restored);
    return writer.Write(event) ? grpc::Status::OK : given_up;
  }

  Impl* engine_;
};

FakeEngine::FakeEngine(std::string run_dir) : impl_(std::make_unique<Impl>()) {
  impl_->run_dir = std::move(run_dir);
}

FakeEngine::~FakeEngine() { die(); }

void FakeEngine::keep_at_most(std::size_t count) { impl_->kept_max = count; }

void FakeEngine::start() {
  rpc::ServerOptions options;
  options.run_dir = impl_->run_dir;
  options.name = "gpu-worker";
  options.status = [engine = impl_.get()](v1::GetStatusResponse& response) {
    response.set_state(engine->ready ? v1::PROCESS_STATE_READY : v1::PROCESS_STATE_STARTING);
    response.set_progress(engine->ready ? 1 : 0.42);
  };
  options.metrics = std::make_shared<obs::Metrics>(obs::Labels{});
  options.metrics->counter("strata_expert_uses_total", "Uses.", {{"served_by", "cpu"}}).Increment(3);
  std::vector<std::unique_ptr<grpc::Service>> services;
  impl_->states = std::make_unique<FakeStates>(++impl_->instance, impl_->kept_max);
  services.push_back(std::make_unique<Impl::Service>(impl_.get()));
  services.push_back(std::make_unique<Impl::StatesService>(impl_->states.get()));
  auto server = rpc::Server::start(std::move(options), std::move(services));
  ASSERT_TRUE(server) << server.error().message();
  impl_->server = std::move(*server);
}

void FakeEngine::die() { impl_->server.reset(); }

void FakeEngine::set_script(Script script) {
  std::scoped_lock lock(impl_->mutex);
  impl_->script = std::move(script);
}
void FakeEngine::set_store(FakeStore* store) { impl_->store = store; }
void FakeEngine::set_ready(bool ready) { impl_->ready = ready; }
void FakeEngine::set_sequences(uint32_t sequences) { impl_->sequences = sequences; }
void FakeEngine::set_context(uint32_t tokens) { impl_->context = tokens; }
void FakeEngine::set_chunks(uint32_t prefill_chunk_tokens, bool captures_within_windows) {
  impl_->prefill_chunk_tokens = prefill_chunk_tokens;
  impl_->captures_within_windows = captures_within_windows;
}
std::vector<SeenCall> FakeEngine::seen() const {
  std::scoped_lock lock(impl_->mutex);
  return impl_->seen;
}
std::vector<std::vector<int32_t>> FakeEngine::kept() const { return impl_->states->live(); }
std::size_t FakeEngine::states() const { return impl_->states->count(); }
uint32_t FakeEngine::running() const { return impl_->running; }
uint32_t FakeEngine::cancelled() const { return impl_->cancelled; }

}  // namespace strata::gateway::testing
