#pragma once
// One request on its way: waits for a sequence, runs the engine, turns tokens into the response, stream or
// not, and survives an engine that dies in the middle. Every message carries what it belongs to; what belongs
// to an earlier call is dropped and counted (rules A11, H11).
//
//   waiting -> (granted) -> calling -> (engine lost) -> away -> calling ... -> (all choices done | failed |
//   client gone) -> over
//
// Runs on the HTTP thread's executor, as the exchange does.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gateway/admission/admission.h"
#include "gateway/generation/answer.h"
#include "gateway/generation/generation_job.h"
#include "gateway/http/exchange.h"
#include "services/actor/actor.h"

namespace strata::gateway {

struct GenerationLimits {
  std::chrono::milliseconds keepalive{5000};
  std::chrono::milliseconds loading_wait{
      600'000};  // for an engine that has not been ready yet, and in the queue
  std::chrono::milliseconds engine_wait{60'000};  // for an engine that went away under a running answer
  std::size_t backlog_bytes_max = std::size_t{1} << 20;  // that a client may be behind
};

// What all generations share. Outlives them.
struct GenerationEnvironment {
  const tokenizer::Tokenizer* tokenizer = nullptr;
  EngineClient* engine = nullptr;
  GatewayProbe* probe = nullptr;
  std::shared_ptr<Admission> admission;
  GenerationLimits limits;
};

class Generation : public actor::Actor {
 public:
  struct Start {};
  struct EngineSaid {
    uint64_t attempt = 0;
    EngineEvent event = {};
  };
  struct ClientGone {};
  struct KeepAlive {};
  struct GiveUpWaiting {
    uint64_t wait = 0;
  };
  struct SubmitAgain {};
  // The server is stopping and has no more time for this answer.
  struct Stop {};

  // on_over: called last, when nothing of this request is left.
  Generation(std::shared_ptr<actor::Executor> executor, TicketId ticket, GenerationEnvironment environment,
             std::shared_ptr<Exchange> exchange, GenerationJob job, std::function<void(TicketId)> on_over);

  void on(Start);
  void on(AdmissionNews news);
  void on(EngineSaid said);
  void on(ClientGone);
  void on(KeepAlive);
  void on(GiveUpWaiting give_up);
  void on(SubmitAgain);
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
  const Prompt& prompt() const { return job_.prompts[choice_]; }
  Phase phase() const;

  void begin_stream();
  void begin_choice();
  void submit();
  void wait_for_engine(std::chrono::milliseconds limit);
  void lose_engine();
  void show(std::vector<AnswerPiece>& pieces);
  void send(const std::string& json);
  void write(std::string_view bytes);
  void finish_choice(AnswerEnd end);
  void count_choice(FinishCause cause);
  void complete();
  void fail(ApiError error, Outcome outcome);
  void leave_client();
  void close(Outcome outcome);
  void end_call();
  void release();
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
  std::optional<Time> gone_at_;
  EngineInfo engine_info_;
  std::vector<Choice> choices_;  // non-stream: what has been said so far
  Usage done_usage_;             // of the choices that are complete

  // The choice being answered
  uint32_t choice_ = 0;
  std::optional<Answer> answer_;
  std::vector<int32_t> tokens_;  // generated so far
  std::optional<Time> last_token_;
  PromptProgress progress_;
  std::optional<EngineFinished> finished_;
  bool choice_done_ = false;

  // The call
  std::shared_ptr<EngineCall> call_;  // nullptr: none is open
  uint64_t attempt_ = 0;              // number of the newest call
  bool call_was_heard_ = false;
  bool away_ = false;            // waits for an engine that was lost
  uint32_t losses_ = 0;          // calls that were heard and broke
  uint32_t unheard_losses_ = 0;  // calls that broke before their first event
  uint32_t busy_retries_ = 0;
  uint64_t wait_ = 0;  // number of the newest wait with a limit
};

}  // namespace strata::gateway
