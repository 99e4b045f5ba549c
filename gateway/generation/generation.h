#pragma once
// One request on its way: waits for a sequence, runs its answers (answer_run.h), turns what they say into the
// response, stream or not.
//
//   waiting -> (granted) -> answering -> (all answers ended) -> [being stored ->] over
//   anywhere -> (failed | client gone) -> over
//
// Several answers run side by side as far as there are sequences: each further one waits for its turn in the
// admission's line like a request, one at a time, and gives its sequence back at its end. The first answer to
// a prompt reads it; the others begin when that has been done, from the state that it left. An answer that
// runs alone at its end goes on with the next one in its sequence.
//
// Runs on the HTTP thread's executor, as the exchange does.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gateway/generation/answer_run.h"
#include "gateway/generation/generation_environment.h"
#include "gateway/generation/generation_job.h"
#include "gateway/generation/timings.h"
#include "gateway/http/exchange.h"
#include "services/actor/actor.h"

namespace strata::gateway {

// How far an answer is that holds a sequence.
struct RunningView {
  TicketId ticket = 0;
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  std::optional<uint32_t> max_tokens = {};
  bool stream = false;
  Sampling sampling = {};
};

class Generation : public actor::Actor, private AnswerRun::Owner {
 public:
  struct Start {};
  // To one of its tickets.
  struct News {
    TicketId ticket = 0;
    AdmissionNews news = {};
  };
  struct RunOver {
    uint32_t choice = 0;
  };
  struct ClientGone {};
  struct KeepAlive {};
  // One of the waits may be over.
  struct LookAtClock {};
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
  std::vector<RunningView> running() const;

  void on(Start);
  void on(News news);
  void on(RunOver over);
  void on(ClientGone);
  void on(KeepAlive);
  void on(LookAtClock);
  void on(const Kept& kept);
  void on(Stop);

 private:
  using Time = actor::Clock::time_point;
  enum class Stage : uint8_t { kPending, kRunning, kDone };  // of an answer

  void hear(TicketId ticket, const Queued& queued);
  void hear(TicketId ticket, const Granted& granted);
  void hear(TicketId ticket, const Refused& refused);
  void hear(TicketId ticket, const EngineBack& back);

  void show(AnswerRun& run, std::vector<AnswerPiece>& pieces) override;
  void progressed(AnswerRun& run, const PromptProgress& progress) override;
  void prompt_was_read(AnswerRun& run) override;
  void ended(AnswerRun& run, AnswerEnd end) override;
  void failed(ApiError error, Outcome outcome) override { fail(std::move(error), outcome); }
  void waits(AnswerRun& run) override;
  void over(AnswerRun& run) override;

  std::shared_ptr<Generation> self() { return std::static_pointer_cast<Generation>(shared_from_this()); }
  Phase phase() const;
  uint32_t prompt_of(uint32_t choice) const { return choice / job_.answers; }

  void submit(TicketId ticket, bool further);
  void begin_stream();
  std::shared_ptr<AnswerRun> begin_answer(uint32_t choice, TicketId ticket);
  std::optional<uint32_t> next_answer() const;
  void run_next(TicketId ticket);
  void ask_for_further();
  void end_further();
  void leave(TicketId ticket);
  void look_at_clock_later();
  void pass_deadline();
  void write(std::string_view bytes);
  void note_answer(const AnswerRun& run);
  void log_request(Outcome outcome, const Usage& counted);
  std::string reuse_header() const;
  void keep_best();
  void complete();
  void keep();
  void keep_unfinished(const ApiError* error);
  void say_end();
  void fail(ApiError error, Outcome outcome);
  void leave_client();
  void count_running(FinishCause cause) const;
  void close(Outcome outcome);
  void end_if_idle();
  Usage usage() const;

  const std::shared_ptr<actor::Executor> executor_;  // for the runs, too
  const TicketId ticket_;
  GenerationEnvironment environment_;
  std::shared_ptr<Exchange> exchange_;
  GenerationJob job_;
  std::function<void(TicketId)> on_over_;

  // The request as a whole
  bool granted_ = false;
  bool in_line_ = false;  // its own ticket is the admission's
  bool closed_ = false;   // the client has all it will get, or is gone
  Time arrived_, last_write_;
  std::optional<Time> deadline_;    // the request's own
  std::optional<Time> give_up_at_;  // on a sequence
  std::optional<Time> next_look_;   // at the clock; the earliest
  std::chrono::nanoseconds queued_{0};
  bool past_deadline_ = false;
  std::optional<Time> gone_at_;
  EngineInfo engine_info_;
  bool keeping_ = false;  // all has been said, and waits to be stored

  // By answer, over all prompts
  std::vector<Stage> stages_;
  uint32_t done_ = 0;
  std::vector<Choice> choices_;       // non-stream: what has been said so far
  std::vector<MeanLogprob> ratings_;  // of those that have ended
  std::vector<std::string> spoken_;   // for the request log, if it wants what was said
  // By prompt
  std::vector<bool> read_;                          // the engine has its state
  std::vector<std::optional<ReuseReport>> reuses_;  // of the answer that read it, once that has ended
  Usage done_usage_;                                // of the answers that have ended; no queue

  std::vector<std::shared_ptr<AnswerRun>> runs_;  // those that hold a sequence, or did just now
  std::optional<TicketId> further_;               // waits for one more sequence
  bool further_refused_ = false;
};

}  // namespace strata::gateway
