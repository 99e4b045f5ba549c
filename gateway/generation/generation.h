#pragma once
// One request on its way: waits for a sequence, runs the engine, turns tokens into the response, stream or
// not, and survives an engine that dies in the middle. Every message carries what it belongs to; what belongs
// to an earlier call is dropped and counted (rules A11, H11).
//
//   waiting -> (granted) -> searching -> calling -> (engine lost) -> away -> searching ... -> (all choices
//   done) -> [being stored ->] over
//   anywhere -> (failed | client gone) -> over
//
// Searching: which state of an earlier prompt this one can be continued from (conversation_index.h). Asked
// again before every call, because with an engine what it kept is gone, and parked states are not.
//
// Runs on the HTTP thread's executor, as the exchange does.

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "gateway/admission/admission.h"
#include "gateway/generation/answer.h"
#include "gateway/generation/answer_tokens.h"
#include "gateway/generation/generation_job.h"
#include "gateway/generation/timings.h"
#include "gateway/http/exchange.h"
#include "gateway/index/conversation_index.h"
#include "gateway/request_log/request_log.h"
#include "gateway/responses/response_keeper.h"
#include "services/actor/actor.h"

namespace strata::gateway {

struct GenerationLimits {
  std::chrono::milliseconds keepalive{5000};
  std::chrono::milliseconds loading_wait{
      600'000};  // for an engine that has not been ready yet, and in the queue
  std::chrono::milliseconds engine_wait{60'000};  // for an engine that went away under a running answer
  std::size_t backlog_bytes_max = std::size_t{1} << 20;  // that a client may be behind
};

// What is kept of prompts for others to come.
struct ReuseOptions {
  CheckpointOptions checkpoints;
  bool share_roots = false;  // system prompt and tools are for all namespaces
};

// What all generations share. Outlives them.
struct GenerationEnvironment {
  const tokenizer::Tokenizer* tokenizer = nullptr;
  EngineClient* engine = nullptr;
  GatewayProbe* probe = nullptr;
  ConversationProbe* conversations = nullptr;
  std::shared_ptr<Admission> admission;
  std::shared_ptr<ConversationIndex> index;
  RequestLog* request_log = nullptr;            // nullptr: none is kept
  std::shared_ptr<ResponseKeeper> keeper = {};  // nullptr: responses are not stored
  GenerationLimits limits;
  ReuseOptions reuse;
};

// How likely an answer is, per token; one without tokens is the least likely.
struct MeanLogprob {
  double sum = 0;
  uint32_t tokens = 0;
  double value() const { return tokens == 0 ? -std::numeric_limits<double>::infinity() : sum / tokens; }
};

// How far a request is that holds a sequence.
struct RunningView {
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  std::optional<uint32_t> max_tokens = {};
  bool stream = false;
  Sampling sampling = {};
};

class Generation : public actor::Actor {
 public:
  struct Start {};
  struct Found {
    uint64_t search = 0;
    PrefixMatch match = {};
  };
  struct EngineSaid {
    uint64_t attempt = 0;
    EngineEvent event = {};
  };
  struct ClientGone {};
  struct KeepAlive {};
  // One of the waits may be over.
  struct LookAtClock {};
  struct SubmitAgain {};
  // The keeper has done what it could.
  struct Kept {
    Status status;
  };
  // The server is stopping and has no more time for this answer.
  struct Stop {};

  // on_over: called last, when nothing of this request is left.
  Generation(std::shared_ptr<actor::Executor> executor, TicketId ticket, GenerationEnvironment environment,
             std::shared_ptr<Exchange> exchange, GenerationJob job, std::function<void(TicketId)> on_over);

  // On the HTTP thread, as everything else. Nothing: it waits, or is over.
  std::optional<RunningView> running() const;

  void on(Start);
  void on(AdmissionNews news);
  void on(Found found);
  void on(EngineSaid said);
  void on(ClientGone);
  void on(KeepAlive);
  void on(LookAtClock);
  void on(SubmitAgain);
  void on(const Kept& kept);
  void on(Stop);

 private:
  using Time = actor::Clock::time_point;

  void hear(const Queued& queued);
  void hear(const Granted& granted);
  void hear(const Refused& refused);
  void hear(const EngineBack& back);

  void handle(const PromptProgress& progress);
  void handle(const GeneratedToken& token);
  void handle(const EngineFinished& finished);
  void handle(const EngineEnded& ended);

  std::shared_ptr<Generation> self() { return std::static_pointer_cast<Generation>(shared_from_this()); }
  const Prompt& prompt() const { return job_.prompts[choice_ / job_.answers]; }
  bool first_of_prompt() const { return choice_ % job_.answers == 0; }
  bool picks_best() const { return job_.choices < job_.answers; }
  Phase phase() const;

  void begin_stream();
  void begin_choice();
  void next_choice();
  void search();
  void submit(const PrefixMatch& match);
  Sampling sampling() const;
  void limit_thinking(GenerateCall& call) const;
  void heard();
  void wait_for_engine(std::chrono::milliseconds limit);
  void look_at_clock_later();
  void pass_deadline();
  void lose_engine();
  void show(std::vector<AnswerPiece>& pieces);
  void write(std::string_view bytes);
  void finish_choice(AnswerEnd end);
  void count_choice(FinishCause cause);
  void note_answer();
  void log_request(Outcome outcome, Usage counted);
  void keep_best();
  void complete();
  void keep();
  void say_end();
  void fail(ApiError error, Outcome outcome);
  void leave_client();
  void close(Outcome outcome);
  void end_call();
  void release();
  std::span<const int32_t> tokens() const { return chosen_->tokens(); }  // generated so far
  Usage usage() const;

  const TicketId ticket_;
  GenerationEnvironment environment_;
  std::shared_ptr<Exchange> exchange_;
  GenerationJob job_;
  std::function<void(TicketId)> on_over_;

  // The request as a whole
  bool granted_ = false;
  bool closed_ = false;  // the client has all it will get, or is gone
  Time arrived_, last_write_;
  RequestClock clock_;
  std::optional<Time> deadline_;    // the request's own
  std::optional<Time> give_up_at_;  // on a sequence, or on an engine that went away
  std::optional<Time> next_look_;   // at the clock; the earliest
  bool past_deadline_ = false;
  std::optional<Time> gone_at_;
  EngineInfo engine_info_;
  bool keeping_ = false;              // all has been said, and waits to be stored
  std::vector<Choice> choices_;       // non-stream: what has been said so far
  std::vector<MeanLogprob> ratings_;  // of the choices
  Usage done_usage_;                  // of the choices that are complete
  std::string reuse_header_;          // of these, too
  std::vector<std::string> spoken_;   // for the request log, if it wants what was said

  // The choice being answered
  uint32_t choice_ = 0;
  std::optional<Answer> answer_;
  std::optional<AnswerTokens> chosen_;
  std::optional<ReuseReport> reuse_;  // of the last call that was heard
  std::optional<Time> last_token_;
  PromptProgress progress_;
  std::optional<EngineFinished> finished_;
  bool choice_done_ = false;

  // The call
  uint64_t search_ = 0;                 // number of the newest search
  std::optional<ReuseReport> promise_;  // what it found
  std::shared_ptr<EngineCall> call_;    // nullptr: none is open
  uint64_t attempt_ = 0;                // number of the newest call
  bool call_was_heard_ = false;
  bool away_ = false;            // waits for an engine that was lost
  uint32_t losses_ = 0;          // calls that were heard and broke
  uint32_t unheard_losses_ = 0;  // calls that broke before their first event
  uint32_t busy_retries_ = 0;
};

}  // namespace strata::gateway
