#include "gateway/generation/answer_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "services/obs/log.h"

namespace strata::gateway {

namespace {

// What a next turn reads again at most of an answer that a stop string ended, besides the string. Each costs
// a copy of the fixed part of the state on the device.
constexpr uint32_t kAnswerCheckpointTokens = 16;

// Of the tokens that an answer may have, thinking included.
constexpr uint32_t kThinkingPercentMax = 80;

using std::chrono::milliseconds;

// A request that the engine has died of so often may well be the reason.
constexpr uint32_t kLossesMax = 3;
// Calls lost before their first event: the engine says it is ready and does not answer.
constexpr uint32_t kUnheardLossesMax = 50;
constexpr milliseconds kSubmitAgainDelay{50};
// A sequence that was just given up is free again at the next window boundary; windows over long prompts take
// a while.
constexpr uint32_t kBusyRetriesMax = 200;

double seconds(actor::Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

AnswerOptions answer_options(const GenerationJob& job, uint32_t choice) {
  return {.split_thinking = job.endpoint != Endpoint::kCompletions,
          .starts_in_thinking = job.prompts[choice / job.answers].in_thinking,
          .scores = job.sampling.logprobs,
          .stop = job.stop,
          .calls = job.calls};
}

}  // namespace

AnswerRun::AnswerRun(std::shared_ptr<actor::Executor> executor, Owner& owner,
                     const GenerationEnvironment& environment, const GenerationJob& job,
                     std::string request_id, Place place)
    : Actor(std::move(executor)),
      owner_(&owner),
      environment_(&environment),
      job_(&job),
      request_id_(std::move(request_id)),
      place_(std::move(place)),
      answer_(*environment.tokenizer, answer_options(job, place_.choice)),
      clock_(this->executor().now()) {}

void AnswerRun::begin() { search(); }

// Within the prompt only: a state that reaches into the answer may have read it as a prompt, and would differ
// from this answer's in rounding (numbers contract). One token more makes room for a state of the whole
// prompt.
void AnswerRun::search() {
  ConversationIndex::Find find{.tokens = prompt().tokens, .owner = job_->name_space};
  if (!tokens().empty()) find.tokens.push_back(tokens().front());
  std::weak_ptr<AnswerRun> weak = self();
  find.reply = [weak, search = ++search_](const PrefixMatch& match) {
    if (auto alive = weak.lock()) tell(alive, Found{.search = search, .match = match});
  };
  tell(environment_->index, std::move(find));
}

void AnswerRun::on(const Found& found) {
  if (done() || call_ != nullptr || found.search != search_) return;
  promise_.emplace(found.match, static_cast<uint32_t>(prompt().tokens.size()));
  submit(found.match);
}

void AnswerRun::submit(const PrefixMatch& match) {
  const auto prompt_count = static_cast<uint32_t>(prompt().tokens.size());
  const uint32_t room = place_.engine.context_tokens - prompt_count;
  const ReuseOptions& reuse = environment_->reuse;
  CheckpointOptions checkpoints = reuse.checkpoints;
  if (!place_.engine.captures_within_windows) checkpoints.chunk_tokens = place_.engine.prefill_chunk_tokens;
  checkpoints.reused_stays = !match.state || match.state->source != Source::kLive;
  checkpoints.before_last_token = first_of_prompt() && job_->answers > 1;
  GenerateCall call{.request_id = request_id_,
                    .prompt_tokens = prompt().tokens,
                    .generated_tokens = {tokens().begin(), tokens().end()},
                    .sampling = sampling(),
                    .max_tokens = std::min(job_->max_tokens.value_or(room), room),
                    .name_space = job_->name_space,
                    .shared_prompt_tokens = reuse.share_roots ? prompt().landmarks.system_end : 0,
                    .checkpoints = checkpoint_positions(prompt().landmarks, prompt_count,
                                                        match.reused_tokens(), checkpoints)};
  // Behind a stop string the engine is some tokens further than what was shown.
  if (!job_->stop.empty()) call.answer_checkpoint_tokens = kAnswerCheckpointTokens;
  if (match.state && holder_of(match.state->source) == Holder::kStore) {
    call.parked = ParkedState{.id = match.state->id, .tokens = match.state->position};
  }
  if (!job_->grammar.gbnf.empty()) {
    call.constraint = Constraint{.gbnf = job_->grammar.gbnf, .prompt_tokens = prompt().call_tokens};
  }
  limit_thinking(call);
  const auto end_tokens = environment_->tokenizer->end_of_generation();
  call.end_tokens.assign(end_tokens.begin(), end_tokens.end());
  call_was_heard_ = false;
  std::weak_ptr<AnswerRun> weak = self();
  call_ = environment_->engine->generate(std::move(call), [weak, attempt = ++attempt_](EngineEvent event) {
    if (auto alive = weak.lock()) tell(alive, EngineSaid{.attempt = attempt, .event = std::move(event)});
  });
}

Sampling AnswerRun::sampling() const {
  Sampling sampling = job_->sampling;
  sampling.seed += place_.choice % job_->answers;  // what a request for that answer alone would use
  sampling.logprobs |= job_->picks_best();
  return sampling;
}

// A part of the cap is kept for the answer (rule B16).
void AnswerRun::limit_thinking(GenerateCall& call) const {
  if (job_->endpoint == Endpoint::kCompletions || job_->calls.begun) return;
  const int32_t begin = environment_->tokenizer->find_token(kThinkOpen);
  const int32_t end = environment_->tokenizer->find_token(kThinkClose);
  if (begin < 0 || end < 0) return;
  if (!prompt().in_thinking) call.thinking_begin = begin;
  const auto share = static_cast<uint32_t>(uint64_t{call.max_tokens} * kThinkingPercentMax / 100);
  call.thinking_end = end;
  call.thinking_tokens_max = std::min(job_->thinking_tokens_max, share);
}

// The call's first event: the engine has begun.
void AnswerRun::heard() {
  if (std::exchange(call_was_heard_, true)) return;
  reuse_ = promise_;
}

void AnswerRun::engine_is_back(const EngineInfo& engine) {
  if (!away_) return;
  place_.engine = engine;
  tell_after(self(), kSubmitAgainDelay, SubmitAgain{});
}

void AnswerRun::on(SubmitAgain) {
  if (done() || call_ != nullptr) return;
  away_ = false;
  gives_up_at_.reset();
  search();
}

void AnswerRun::on(EngineSaid said) {
  if (said.attempt != attempt_ || call_ == nullptr) {
    environment_->probe->protocol_fault(ProtocolFault::kStaleEvent);
    return;
  }
  std::visit([this](const auto& event) { handle(event); }, said.event);
}

void AnswerRun::handle(const PromptProgress& progress) {
  heard();
  reuse_->began({.reused_tokens = progress.cached});
  reuse_->kept(progress.kept);
  progress_ = progress;
  if (!done()) owner_->progressed(*this, progress);
}

void AnswerRun::handle(const GeneratedToken& token) {
  heard();
  if (done()) return;
  const bool first = tokens().empty();
  if (Status chosen = chosen_.chose(token.index, token.id); !chosen.ok()) {
    environment_->probe->protocol_fault(ProtocolFault::kTokenIndex);
    return owner_->failed(engine_failed("the engine sent " + chosen.message()), Outcome::kEngineError);
  }
  rating_.sum += token.logprob;
  ++rating_.tokens;
  const Time now = this->executor().now();
  if (last_token_) {
    environment_->probe->inter_token_seconds.Observe(seconds(now - *last_token_));
  } else if (first) {
    environment_->probe->first_token_seconds.Observe(seconds(now - place_.arrived));
  }
  last_token_ = now;
  clock_.token(now);
  std::vector<AnswerPiece> pieces;
  answer_.push(token, pieces);
  owner_->show(*this, pieces);
  if (first && !done()) owner_->prompt_was_read(*this);
  if (done()) return;
  if (auto ended = answer_.ended()) end(*ended);
}

void AnswerRun::handle(const EngineFinished& finished) {
  finished_ = finished;
  if (done()) return;
  heard();
  reuse_->began({.reused_tokens = finished.prompt_tokens_reused,
                 .source = finished.source,
                 .not_restored = finished.not_restored});
  if (finished.reason != EngineFinished::Reason::kEndToken) return end(AnswerEnd::kLength);
  if (Status chosen = chosen_.chose_end(); !chosen.ok()) {
    environment_->probe->protocol_fault(ProtocolFault::kTokenIndex);
    return owner_->failed(engine_failed(chosen.message()), Outcome::kEngineError);
  }
  end(AnswerEnd::kStopToken);
}

void AnswerRun::handle(const EngineEnded& ended) {
  call_.reset();
  if (done()) return end_call();
  switch (ended.status.code()) {
    case Code::kUnavailable:
    case Code::kCancelled:  // not by us: the engine is stopping
      return lose_engine();
    case Code::kResourceExhausted:
      if (++busy_retries_ <= kBusyRetriesMax) return tell_after(self(), kSubmitAgainDelay, SubmitAgain{});
      return owner_->failed(overloaded(0, 1), Outcome::kOverloaded);
    case Code::kOutOfRange:
      return owner_->failed(context_exceeded(prompt().tokens.size(), place_.engine.context_tokens),
                            Outcome::kTooLong);
    case Code::kInvalidArgument:
      if (job_->grammar.gbnf.empty()) break;
      return owner_->failed(
          invalid_request(fmt::format("{}: {}", job_->grammar.param, ended.status.message()),
                          job_->grammar.param),
          Outcome::kBadRequest);
    case Code::kOk:
      return owner_->failed(engine_failed("the engine ended the answer without saying why"),
                            Outcome::kEngineError);
    default:
      break;
  }
  owner_->failed(engine_failed(ended.status.message()), Outcome::kEngineError);
}

void AnswerRun::lose_engine() {
  uint32_t& losses = call_was_heard_ ? losses_ : unheard_losses_;
  if (++losses > (call_was_heard_ ? kLossesMax : kUnheardLossesMax)) {
    return owner_->failed(
        engine_failed(fmt::format("the engine was lost {} times while it answered this request", losses)),
        Outcome::kEngineError);
  }
  if (call_was_heard_) {
    environment_->probe->resubmissions.Increment();
    obs::warn("generation", "{}: engine lost after {} tokens, waiting for it", request_id_, tokens().size());
  }
  last_token_.reset();  // the pause is not the time between two tokens
  if (!std::exchange(away_, true)) {
    gives_up_at_ = this->executor().now() + environment_->limits.engine_wait;
    owner_->waits(*this);
  }
  tell(environment_->admission, Admission::EngineLost{.ticket = place_.ticket});
}

void AnswerRun::end(AnswerEnd end) {
  ended_ = true;
  clock_.ends(this->executor().now());
  std::vector<AnswerPiece> pieces;
  answer_.finish(end, pieces);
  owner_->show(*this, pieces);
  if (!closed_) owner_->ended(*this, end);
  end_call();
}

void AnswerRun::close() {
  if (std::exchange(closed_, true)) return;
  end_call();
}

void AnswerRun::end_call() {
  if (call_ == nullptr) {
    if (!std::exchange(over_, true)) owner_->over(*this);
  } else if (!finished_) {
    call_->cancel();
  }
}

void AnswerRun::count(FinishCause cause) const {
  const auto generated = static_cast<uint32_t>(tokens().size());
  GatewayProbe& probe = *environment_->probe;
  probe.finished(cause);
  probe.generated_thinking.Increment(answer_.reasoning_tokens());
  probe.generated_answer.Increment(generated - answer_.reasoning_tokens());
  if (!reuse_) return;  // the engine never began
  const uint32_t read =
      tokens().empty() && !finished_ ? progress_.processed : static_cast<uint32_t>(prompt().tokens.size());
  environment_->conversations->looked_up(*reuse_);
  environment_->conversations->prompt_read(*reuse_, read);
}

Usage AnswerRun::usage(Time now) const {
  Usage usage{.completion_tokens = static_cast<uint32_t>(tokens().size()),
              .reasoning_tokens = answer_.reasoning_tokens(),
              .timings = clock_.timings(now)};
  if (first_of_prompt()) {  // the others read it again, or do not have to; it is one prompt
    usage.prompt_tokens = static_cast<uint32_t>(prompt().tokens.size());
    usage.cached_tokens = reuse_ ? reuse_->reused_tokens() : 0;
    usage.cache_creation_tokens = reuse_ ? reuse_->split().cache_creation_input_tokens : 0;
  }
  return usage;
}

}  // namespace strata::gateway
