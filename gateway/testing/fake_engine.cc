#include "gateway/testing/fake_engine.h"

#include <atomic>
#include <mutex>
#include <thread>

#include "gateway/generation/test_tokenizer.h"
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
  std::unique_ptr<rpc::Server> server;

  class Service;
};

class FakeEngine::Impl::Service final : public v1::Engine::Service {
 public:
  explicit Service(Impl* engine) : engine_(engine) {}

  grpc::Status GetEngine(grpc::ServerContext*, const v1::GetEngineRequest*,
                         v1::GetEngineResponse* response) override {
    response->set_context_tokens(engine_->context);
    response->set_sequences_max(engine_->sequences);
    return grpc::Status::OK;
  }

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    Script script;
    {
      std::scoped_lock lock(engine_->mutex);
      script = engine_->script;
      engine_->seen.push_back(
          {.prompt_tokens = {request->prompt_tokens().begin(), request->prompt_tokens().end()},
           .generated_tokens = {request->generated_tokens().begin(), request->generated_tokens().end()},
           .max_tokens = request->max_tokens(),
           .seed = request->sampling().seed(),
           .temperature = request->sampling().temperature()});
    }
    ++engine_->running;
    const bool complete = answer(*context, *request, script, *writer);
    --engine_->running;
    if (complete) return grpc::Status::OK;
    ++engine_->cancelled;
    return grpc::Status(grpc::StatusCode::CANCELLED, "given up");
  }

 private:
  static bool wait(const grpc::ServerContext& context, std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (!context.IsCancelled() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(kLookInterval);
    return !context.IsCancelled();
  }

  static bool answer(const grpc::ServerContext& context, const v1::GenerateRequest& request,
                     const Script& script, grpc::ServerWriter<v1::GenerateResponse>& writer) {
    v1::GenerateResponse event;
    const auto prompt = static_cast<uint32_t>(request.prompt_tokens_size());
    event.mutable_progress()->set_total(prompt);
    event.mutable_progress()->set_processed(prompt);
    if (!writer.Write(event) || !wait(context, script.prefill)) return false;
    const std::vector<int32_t> text = test_tokenizer().encode_trusted(script.text);
    const std::size_t length = script.endless ? SIZE_MAX : text.size();
    auto index = static_cast<std::size_t>(request.generated_tokens_size());
    for (; index < std::min<std::size_t>(length, request.max_tokens()); ++index) {
      event.mutable_token()->set_id(text[index % text.size()]);
      event.mutable_token()->set_index(static_cast<uint32_t>(index));
      if (!writer.Write(event) || !wait(context, script.per_token)) return false;
    }
    event.mutable_finished()->set_reason(index == length ? v1::FINISH_REASON_END_TOKEN
                                                         : v1::FINISH_REASON_LENGTH);
    event.mutable_finished()->set_prompt_tokens_computed(prompt);
    return writer.Write(event);
  }

  Impl* engine_;
};

FakeEngine::FakeEngine(std::string run_dir) : impl_(std::make_unique<Impl>()) {
  impl_->run_dir = std::move(run_dir);
}

FakeEngine::~FakeEngine() { die(); }

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
  services.push_back(std::make_unique<Impl::Service>(impl_.get()));
  auto server = rpc::Server::start(std::move(options), std::move(services));
  ASSERT_TRUE(server) << server.error().message();
  impl_->server = std::move(*server);
}

void FakeEngine::die() { impl_->server.reset(); }

void FakeEngine::set_script(Script script) {
  std::scoped_lock lock(impl_->mutex);
  impl_->script = std::move(script);
}
void FakeEngine::set_ready(bool ready) { impl_->ready = ready; }
void FakeEngine::set_sequences(uint32_t sequences) { impl_->sequences = sequences; }
void FakeEngine::set_context(uint32_t tokens) { impl_->context = tokens; }
std::vector<SeenCall> FakeEngine::seen() const {
  std::scoped_lock lock(impl_->mutex);
  return impl_->seen;
}
uint32_t FakeEngine::running() const { return impl_->running; }
uint32_t FakeEngine::cancelled() const { return impl_->cancelled; }

}  // namespace strata::gateway::testing
