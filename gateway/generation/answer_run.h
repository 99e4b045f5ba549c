#pragma once
// One answer of a request on its way through the engine: looks for a state to go on from, calls, and survives
// an engine that dies in the middle. Several answers of a request may run side by side, each with a sequence
// of its own. Every message carries what it belongs to; what belongs to an earlier call is dropped and
// counted (rules A11, H11).
//
//   searching -> calling -> (engine lost) -> away -> searching ... -> ended -> (its call is over) -> over
//   anywhere -> closed -> (its call is over) -> over
//
// Searching: which state of an earlier prompt this one can be continued from (conversation_index.h). Asked
// again before every call, because with an engine what it kept is gone, and parked states are not.
//
// Belongs to the request's Generation, runs on its executor and talks to it directly.

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gateway/generation/answer.h"
#include "gateway/generation/answer_tokens.h"
#include "gateway/generation/generation_environment.h"
#include "gateway/generation/generation_job.h"
#include "gateway/generation/timings.h"
#include "services/actor/actor.h"

namespace strata::gateway {

// How likely an answer is, per token; one without tokens is the least likely.
struct MeanLogprob {
  double sum = 0;
  uint32_t tokens = 0;
  double value() const { return tokens == 0 ? -std::numeric_limits<double>::infinity() : sum / tokens; }
};

class AnswerRun : public actor::Actor {
 public:
  using Time = actor::Clock::time_point;

  // Hears of everything as soon as it happens; the run may be closed by any of these calls.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void show(AnswerRun& run, std::vector<AnswerPiece>& pieces) = 0;
    virtual void progressed(AnswerRun& run, const PromptProgress& progress) = 0;
    // Its first token is there: the engine has read the prompt and keeps what was asked for.
    virtual void prompt_was_read(AnswerRun& run) = 0;
    virtual void ended(AnswerRun& run, AnswerEnd end) = 0;
    virtual void failed(ApiError error, Outcome outcome) = 0;
    // gives_up_at() is another one.
    virtual void waits(AnswerRun& run) = 0;
    // After its end or close(), once: nothing of it is left at the engine, its sequence is free.
    virtual void over(AnswerRun& run) = 0;
  };

  struct Place {
    uint32_t choice = 0;  // of the request's answers, over all prompts
    TicketId ticket = 0;  // of the sequence that it holds
    Time arrived = {};    // the request
    EngineInfo engine = {};
  };
  struct Found {
    uint64_t search = 0;
    PrefixMatch match = {};
  };
  struct EngineSaid {
    uint64_t attempt = 0;
    EngineEvent event = {};
  };
  struct SubmitAgain {};

  // owner, environment and job outlive it.
  AnswerRun(std::shared_ptr<actor::Executor> executor, Owner& owner, const GenerationEnvironment& environment,
            const GenerationJob& job, std::string request_id, Place place);

  void begin();
  // Now, whatever the engine still says.
  void end(AnswerEnd end);
  // Its owner wants to hear nothing more but over().
  void close();
  // Behind an engine that was lost.
  void engine_is_back(const EngineInfo& engine);

  void on(const Found& found);
  void on(EngineSaid said);
  void on(SubmitAgain);

  uint32_t choice() const { return place_.choice; }
  TicketId ticket() const { return place_.ticket; }
  const Prompt& prompt() const { return job_->prompts[place_.choice / job_->answers]; }
  // Of several answers to a prompt, the one that reads it.
  bool first_of_prompt() const { return place_.choice % job_->answers == 0; }
  bool has_ended() const { return ended_; }
  const Answer& answer() const { return answer_; }
  std::span<const int32_t> tokens() const { return chosen_.tokens(); }
  const MeanLogprob& rating() const { return rating_; }
  const std::optional<ReuseReport>& reuse() const { return reuse_; }  // of the last call that was heard
  // When the engine has been away for too long.
  std::optional<Time> gives_up_at() const { return gives_up_at_; }

  // So far. The prompt counts once, with the answer that reads it. The timings have no queue.
  Usage usage(Time now) const;
  void count(FinishCause cause) const;  // into the metrics: it ended like this

 private:
  std::shared_ptr<AnswerRun> self() { return std::static_pointer_cast<AnswerRun>(shared_from_this()); }
  bool done() const { return ended_ || closed_; }

  void handle(const PromptProgress& progress);
  void handle(const GeneratedToken& token);
  void handle(const EngineFinished& finished);
  void handle(const EngineEnded& ended);

  void search();
  void submit(const PrefixMatch& match);
  Sampling sampling() const;
  void limit_thinking(GenerateCall& call) const;
  void heard();
  void lose_engine();
  void end_call();

  Owner* const owner_;
  const GenerationEnvironment* const environment_;
  const GenerationJob* const job_;
  const std::string request_id_;
  Place place_;

  Answer answer_;
  AnswerTokens chosen_;
  MeanLogprob rating_;
  AnswerClock clock_;
  std::optional<ReuseReport> reuse_;
  std::optional<Time> last_token_;
  PromptProgress progress_;
  std::optional<EngineFinished> finished_;
  bool ended_ = false, closed_ = false, over_ = false;

  uint64_t search_ = 0;                 // number of the newest search
  std::optional<ReuseReport> promise_;  // what it found
  std::shared_ptr<EngineCall> call_;    // nullptr: none is open
  uint64_t attempt_ = 0;                // number of the newest call
  bool call_was_heard_ = false;
  bool away_ = false;  // waits for an engine that was lost
  std::optional<Time> gives_up_at_;
  uint32_t losses_ = 0;          // calls that were heard and broke
  uint32_t unheard_losses_ = 0;  // calls that broke before their first event
  uint32_t busy_retries_ = 0;
};

}  // namespace strata::gateway
