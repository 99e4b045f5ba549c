#pragma once
// One request and all that it meets, on virtual time: the engine is a script, the client is a buffer.

#include "gateway/generation/generation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <map>

#include "gateway/generation/test_tokenizer.h"
#include "gateway/testing/scripted_feed.h"
#include "services/actor/actor_system.h"

namespace strata::gateway::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Keeps the calls; the test says what the engine says.
class ScriptedEngine : public EngineClient {
 public:
  struct Call : EngineCall {
    void cancel() override { cancelled = true; }
    GenerateCall request;
    std::function<void(EngineEvent)> say;
    bool cancelled = false;
  };

  void poll(std::function<void(EngineState)>) override {}
  std::shared_ptr<EngineCall> generate(GenerateCall request,
                                       std::function<void(EngineEvent)> on_event) override {
    auto call = std::make_shared<Call>();
    call->request = std::move(request);
    call->say = std::move(on_event);
    calls.push_back(call);
    return call;
  }
  std::vector<std::shared_ptr<Call>> calls;
};

class GenerationTest : public ::testing::Test {
 protected:
  GenerationTest() : probe_(metrics_), conversations_(metrics_), executor_(world_.make_executor()) {
    index_ = std::make_shared<ConversationIndex>(executor_, PrefixIndexOptions{.reuse_tokens_min = 2},
                                                 ConversationIndex::Feeds{&engine_feed_, &store_feed_},
                                                 conversations_, probe_);
    admission_ = std::make_shared<Admission>(
        executor_, AdmissionOptions{.sequences = 1, .queue_limit = 2},
        [this](const AdmissionView& view) { view_ = view; }, [] {});
    engine_ready();
  }

  void engine_ready(uint32_t context = 1000, uint32_t sequences = 1) {
    EngineState state{.phase = EngineState::Phase::kReady};
    state.info.context_tokens = context;
    state.info.sequences_max = sequences;
    tell(admission_, std::move(state));
    world_.deliver_all();
  }

  GenerationJob job(bool stream) {
    GenerationJob job{.sampling = {.seed = 42}, .max_tokens = 50, .stream = stream};
    job.prompts.push_back({.tokens = {1, 2, 3, 4}});
    job.format =
        make_chat_format({.id = "chatcmpl-1", .created = 1, .model = "demo", .fingerprint = "fp"}, {});
    return job;
  }

  struct Running {
    std::shared_ptr<Exchange> exchange;
    std::shared_ptr<Generation> generation;
    bool over = false;
    std::string received;

    const std::string& read() { return received += exchange->take_buffer(SIZE_MAX); }
    // The joined content of the chunks received.
    std::string content() {
      std::string text;
      for (const auto& chunk : chunks()) {
        if (chunk.as_object().contains("error") || chunk.at("choices").as_array().empty()) continue;
        const auto& delta = chunk.at("choices").at(0).at("delta").as_object();
        if (delta.contains("content")) text += std::string_view(delta.at("content").as_string());
      }
      return text;
    }
    std::vector<boost::json::value> chunks() {
      std::vector<boost::json::value> out;
      const std::string& text = read();
      for (std::size_t at = text.find("data: {"); at != std::string::npos;
           at = text.find("data: {", at + 1)) {
        out.push_back(boost::json::parse(text.substr(at + 6, text.find("\n\n", at) - at - 6)));
      }
      return out;
    }
  };

  Running& start(GenerationJob job) {
    auto running = std::make_unique<Running>();
    Running* raw = running.get();
    runs_.push_back(std::move(running));
    HttpRequest request{.method = "POST"};
    request.id = fmt::format("r{}", runs_.size());
    raw->exchange = std::make_shared<Exchange>(std::move(request), [] {});
    GenerationEnvironment environment{.tokenizer = &test_tokenizer(),
                                      .engine = &engine_,
                                      .probe = &probe_,
                                      .conversations = &conversations_,
                                      .admission = admission_,
                                      .last_ticket = last_ticket_,
                                      .index = index_,
                                      .limits = {.keepalive = seconds(5), .backlog_bytes_max = 16 * 1024},
                                      .reuse = reuse_};
    raw->generation = std::make_shared<Generation>(executor_, ++*last_ticket_, environment, raw->exchange,
                                                   std::move(job), [raw](TicketId) { raw->over = true; });
    tell(raw->generation, Generation::Start{});
    world_.deliver_all();
    return *raw;
  }

  ScriptedEngine::Call& call() { return *engine_.calls.back(); }
  void say(EngineEvent event) {
    call().say(std::move(event));
    world_.deliver_all();
  }
  // The engine generates the text from token `first` on.
  void generate(std::string_view text) {
    auto& request = call().request;
    auto index = static_cast<uint32_t>(request.generated_tokens.size() + said_[&call()]);
    for (int32_t id : test_tokenizer().encode_trusted(text)) {
      say(GeneratedToken{.id = id, .index = index++, .logprob = -0.1f});
      ++said_[&call()];
    }
  }
  void end(Status status = {}) { say(EngineEnded{std::move(status)}); }
  void finish(EngineFinished::Reason reason = EngineFinished::Reason::kEndToken) {
    say(EngineFinished{.reason = reason, .prompt_tokens_reused = 1});
    end();
  }
  // Of the samples with this label, or of all.
  double count(const std::string& name, const std::string& label = "") {
    double sum = 0;
    for (const auto& family : metrics_.collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        const bool here =
            std::ranges::any_of(metric.label, [&](const auto& given) { return given.value == label; });
        if (label.empty() || here) sum += metric.counter.value;
      }
    }
    return sum;
  }

  actor::VirtualWorld world_;
  obs::Metrics metrics_{{}};
  GatewayProbe probe_;
  ConversationProbe conversations_;
  ScriptedFeed engine_feed_, store_feed_;
  std::shared_ptr<ConversationIndex> index_;
  ReuseOptions reuse_;
  std::shared_ptr<actor::Executor> executor_;
  ScriptedEngine engine_;
  std::shared_ptr<Admission> admission_;
  std::shared_ptr<TicketId> last_ticket_ = std::make_shared<TicketId>(0);
  AdmissionView view_;
  std::vector<std::unique_ptr<Running>> runs_;
  std::map<ScriptedEngine::Call*, std::size_t> said_;
};

}  // namespace strata::gateway::testing
