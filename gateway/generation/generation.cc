#include "gateway/generation/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
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

// A timer keeps the memory of its request until it is due, long after the answer: at 200 answers a second,
// ten minutes of waiting would be 300 MB. So a long wait is a row of short ones.
constexpr milliseconds kLookIntervalMax{2000};

double seconds(actor::Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

struct ChoiceEnd {
  Finish finish = {};
  FinishCause cause = FinishCause::kStopToken;
};

ChoiceEnd how_it_ended(AnswerEnd end, const Answer& answer) {
  const bool called = answer.calls() > 0;
  ChoiceEnd out;
  switch (end) {
    case AnswerEnd::kStopToken:
    case AnswerEnd::kOneCall:
      if (called) out = {.finish = {.reason = Finish::Reason::kToolCalls}, .cause = FinishCause::kToolCalls};
      break;
    case AnswerEnd::kStopString:
      out = {.finish = {.reason = Finish::Reason::kStopString, .stop_string = answer.stop_string()},
             .cause = FinishCause::kStopString};
      break;
    case AnswerEnd::kLength:
      out = {.finish = {.reason = Finish::Reason::kLength}, .cause = FinishCause::kLength};
      break;
    case AnswerEnd::kDeadline:
      out = {.finish = {.reason = Finish::Reason::kLength, .detail = "deadline"},
             .cause = FinishCause::kLength};
      break;
    case AnswerEnd::kLoopGuard:
      out = {.finish = {.detail = "loop_guard"}, .cause = FinishCause::kLoopGuard};
      break;
  }
  if (answer.malformed_call() && out.finish.detail.empty()) out.finish.detail = "malformed_tool_call";
  if (end == AnswerEnd::kStopToken && answer.in_thinking()) {
    out.finish.detail = "ended_in_thinking";
    out.cause = FinishCause::kEndedInThinking;
  }
  return out;
}

}  // namespace

Generation::Generation(std::shared_ptr<actor::Executor> executor, TicketId ticket,
                       GenerationEnvironment environment, std::shared_ptr<Exchange> exchange,
                       GenerationJob job, std::function<void(TicketId)> on_over)
    : Actor(std::move(executor)),
      ticket_(ticket),
      environment_(std::move(environment)),
      exchange_(std::move(exchange)),
      job_(std::move(job)),
      on_over_(std::move(on_over)) {}

void Generation::on(Start) {
  arrived_ = last_write_ = this->executor().now();
  clock_.arrived(arrived_);
  choices_.resize(job_.prompts.size() * job_.answers);
  ratings_.resize(choices_.size());
  std::weak_ptr<Generation> weak = self();
  exchange_->on_client_gone([weak] {
    if (auto alive = weak.lock()) tell(alive, ClientGone{});
  });
  tell(environment_.admission, Admission::Submit{.ticket = ticket_,
                                                 .key = job_.name_space,
                                                 .priority = job_.priority,
                                                 .no_wait = job_.no_wait,
                                                 .reply = [weak](AdmissionNews news) {
                                                   if (auto alive = weak.lock()) tell(alive, std::move(news));
                                                 }});
  wait_for_engine(environment_.limits.loading_wait);
  if (job_.timeout) deadline_ = arrived_ + *job_.timeout;
  look_at_clock_later();
}

// ---- what the admission says

void Generation::on(AdmissionNews news) {
  if (closed_) return;
  std::visit([this](const auto& one) { hear(one); }, news);
}

void Generation::hear(const Queued& queued) {
  if (!job_.stream) return;
  if (!exchange_->started()) begin_stream();
  write(job_.format->queued(queued.position));
}

void Generation::hear(const Granted& granted) {
  granted_ = true;
  give_up_at_.reset();
  engine_info_ = granted.engine;
  const Time now = this->executor().now();
  clock_.granted(now);
  environment_.probe->queue_seconds.Observe(seconds(now - arrived_));
  if (const Prompt* too_long = first_too_long(job_.prompts, engine_info_.context_tokens)) {
    return fail(context_exceeded(too_long->tokens.size(), engine_info_.context_tokens), Outcome::kTooLong);
  }
  if (job_.stream && !exchange_->started()) begin_stream();
  begin_choice();
}

void Generation::hear(const Refused& refused) { fail(refused.error, Outcome::kOverloaded); }

void Generation::hear(const EngineBack& back) {
  if (!away_) return;
  engine_info_ = back.engine;
  tell_after(self(), kSubmitAgainDelay, SubmitAgain{});
}

void Generation::wait_for_engine(milliseconds limit) {
  give_up_at_ = this->executor().now() + limit;
  look_at_clock_later();
}

void Generation::look_at_clock_later() {
  if (!give_up_at_ && !deadline_) return;
  const Time now = this->executor().now();
  const Time due =
      std::min({give_up_at_.value_or(Time::max()), deadline_.value_or(Time::max()), now + kLookIntervalMax});
  if (next_look_ && *next_look_ <= due) return;
  next_look_ = due;
  tell_after(self(), due - now, LookAtClock{});
}

void Generation::on(LookAtClock) {
  const Time now = this->executor().now();
  if (closed_ || !next_look_ || now < *next_look_) return;
  next_look_.reset();
  if (deadline_ && now >= *deadline_) pass_deadline();
  if (closed_) return;
  if (give_up_at_ && now >= *give_up_at_)
    return fail(granted_ ? engine_away() : waited_too_long(), Outcome::kTimeout);
  look_at_clock_later();
}

// ---- the engine's call

void Generation::begin_choice() {
  answer_.emplace(*environment_.tokenizer,
                  AnswerOptions{.split_thinking = job_.endpoint != Endpoint::kCompletions,
                                .starts_in_thinking = prompt().in_thinking,
                                .scores = job_.sampling.logprobs,
                                .stop = job_.stop,
                                .calls = job_.calls});
  chosen_.emplace();
  reuse_.reset();
  last_token_.reset();
  progress_ = {};
  finished_.reset();
  choice_done_ = false;
  losses_ = unheard_losses_ = busy_retries_ = 0;
  clock_.choice_begins(this->executor().now());
  if (job_.stream) {
    write(job_.format->begin_choice(choice_));
  }
  if (!prompt().echo.empty()) {
    std::vector<AnswerPiece> pieces{{.text = prompt().echo}};
    show(pieces);
  }
  if (closed_) return;  // the client was slow to read and has been left
  if (past_deadline_) return finish_choice(AnswerEnd::kDeadline);
  search();
}

// Within the prompt only: a state that reaches into the answer may have read it as a prompt, and would differ
// from this answer's in rounding (numbers contract). One token more makes room for a state of the whole
// prompt.
void Generation::search() {
  ConversationIndex::Find find{.tokens = prompt().tokens, .owner = job_.name_space};
  if (!tokens().empty()) find.tokens.push_back(tokens().front());
  std::weak_ptr<Generation> weak = self();
  find.reply = [weak, search = ++search_](const PrefixMatch& match) {
    if (auto alive = weak.lock()) tell(alive, Found{.search = search, .match = match});
  };
  tell(environment_.index, std::move(find));
}

void Generation::on(Found found) {
  if (closed_ || call_ != nullptr || found.search != search_) return;
  promise_.emplace(found.match, static_cast<uint32_t>(prompt().tokens.size()));
  submit(found.match);
}

void Generation::submit(const PrefixMatch& match) {
  const auto prompt_count = static_cast<uint32_t>(prompt().tokens.size());
  const uint32_t room = engine_info_.context_tokens - prompt_count;
  const ReuseOptions& reuse = environment_.reuse;
  CheckpointOptions checkpoints = reuse.checkpoints;
  checkpoints.chunk_tokens = engine_info_.prefill_chunk_tokens;
  checkpoints.reused_stays = !match.state || match.state->source != Source::kLive;
  GenerateCall call{.request_id = exchange_->request().id,
                    .prompt_tokens = prompt().tokens,
                    .generated_tokens = {tokens().begin(), tokens().end()},
                    .sampling = sampling(),
                    .max_tokens = std::min(job_.max_tokens.value_or(room), room),
                    .name_space = job_.name_space,
                    .shared_prompt_tokens = reuse.share_roots ? prompt().landmarks.system_end : 0,
                    .checkpoints = checkpoint_positions(prompt().landmarks, prompt_count,
                                                        match.reused_tokens(), checkpoints)};
  // Behind a stop string the engine is some tokens further than what was shown.
  if (!job_.stop.empty()) call.answer_checkpoint_tokens = kAnswerCheckpointTokens;
  if (match.state && holder_of(match.state->source) == Holder::kStore) {
    call.parked = ParkedState{.id = match.state->id, .tokens = match.state->position};
  }
  if (!job_.grammar.gbnf.empty()) {
    call.constraint = Constraint{.gbnf = job_.grammar.gbnf, .prompt_tokens = prompt().call_tokens};
  }
  limit_thinking(call);
  const auto end_tokens = environment_.tokenizer->end_of_generation();
  call.end_tokens.assign(end_tokens.begin(), end_tokens.end());
  call_was_heard_ = false;
  std::weak_ptr<Generation> weak = self();
  call_ = environment_.engine->generate(std::move(call), [weak, attempt = ++attempt_](EngineEvent event) {
    if (auto alive = weak.lock()) tell(alive, EngineSaid{.attempt = attempt, .event = std::move(event)});
  });
}

Sampling Generation::sampling() const {
  Sampling sampling = job_.sampling;
  sampling.seed += choice_ % job_.answers;  // what a request for that answer alone would use
  sampling.logprobs |= picks_best();
  return sampling;
}

// A part of the cap is kept for the answer (rule B16).
void Generation::limit_thinking(GenerateCall& call) const {
  if (job_.endpoint == Endpoint::kCompletions || job_.calls.begun) return;
  const int32_t begin = environment_.tokenizer->find_token(kThinkOpen);
  const int32_t end = environment_.tokenizer->find_token(kThinkClose);
  if (begin < 0 || end < 0) return;
  if (!prompt().in_thinking) call.thinking_begin = begin;
  const auto share = static_cast<uint32_t>(uint64_t{call.max_tokens} * kThinkingPercentMax / 100);
  call.thinking_end = end;
  call.thinking_tokens_max = std::min(job_.thinking_tokens_max, share);
}

// The call's first event: the engine has begun.
void Generation::heard() {
  if (std::exchange(call_was_heard_, true)) return;
  reuse_ = promise_;
}

void Generation::on(SubmitAgain) {
  if (closed_ || call_ != nullptr || choice_done_) return;
  away_ = false;
  give_up_at_.reset();
  search();
}

// What is there is given; the choices that have not begun are empty.
void Generation::pass_deadline() {
  deadline_.reset();
  if (keeping_) return;
  if (choice_ == 0 && phase() != Phase::kDecode)
    return fail(deadline_passed(job_.timeout->count()), Outcome::kTimeout);
  past_deadline_ = true;
  if (!choice_done_) finish_choice(AnswerEnd::kDeadline);
}

void Generation::next_choice() {
  ++choice_;
  begin_choice();
}

void Generation::on(EngineSaid said) {
  if (said.attempt != attempt_ || call_ == nullptr) {
    environment_.probe->protocol_fault(ProtocolFault::kStaleEvent);
    return;
  }
  std::visit([this](const auto& event) { handle(event); }, said.event);
}

void Generation::handle(const PromptProgress& progress) {
  heard();
  reuse_->began({.reused_tokens = progress.cached});
  reuse_->kept(progress.kept);
  progress_ = progress;
  if (closed_ || !job_.stream || !job_.return_progress) return;
  const auto elapsed = std::chrono::duration_cast<milliseconds>(this->executor().now() - arrived_);
  write(job_.format->progress(choice_, progress, static_cast<uint64_t>(elapsed.count())));
}

void Generation::handle(const GeneratedToken& token) {
  heard();
  if (closed_ || choice_done_) return;
  const bool first = tokens().empty();
  if (Status chosen = chosen_->chose(token.index, token.id); !chosen.ok()) {
    environment_.probe->protocol_fault(ProtocolFault::kTokenIndex);
    return fail(engine_failed("the engine sent " + chosen.message()), Outcome::kEngineError);
  }
  ratings_[choice_].sum += token.logprob;
  ++ratings_[choice_].tokens;
  const Time now = this->executor().now();
  if (last_token_) {
    environment_.probe->inter_token_seconds.Observe(seconds(now - *last_token_));
  } else if (first) {
    environment_.probe->first_token_seconds.Observe(seconds(now - arrived_));
  }
  last_token_ = now;
  clock_.token(now);
  std::vector<AnswerPiece> pieces;
  answer_->push(token, pieces);
  show(pieces);
  if (closed_) return;
  if (auto end = answer_->ended()) finish_choice(*end);
}

void Generation::handle(const EngineFinished& finished) {
  finished_ = finished;
  if (closed_ || choice_done_) return;
  heard();
  reuse_->began({.reused_tokens = finished.prompt_tokens_reused,
                 .source = finished.source,
                 .not_restored = finished.not_restored});
  if (finished.reason != EngineFinished::Reason::kEndToken) return finish_choice(AnswerEnd::kLength);
  if (Status chosen = chosen_->chose_end(); !chosen.ok()) {
    environment_.probe->protocol_fault(ProtocolFault::kTokenIndex);
    return fail(engine_failed(chosen.message()), Outcome::kEngineError);
  }
  finish_choice(AnswerEnd::kStopToken);
}

void Generation::handle(const EngineEnded& ended) {
  call_.reset();
  if (gone_at_) environment_.probe->cancel_seconds.Observe(seconds(this->executor().now() - *gone_at_));
  if (closed_) return release();
  if (keeping_) return;
  if (choice_done_) {
    return next_choice();
  }
  switch (ended.status.code()) {
    case Code::kUnavailable:
    case Code::kCancelled:  // not by us: the engine is stopping
      return lose_engine();
    case Code::kResourceExhausted:
      if (++busy_retries_ <= kBusyRetriesMax) return tell_after(self(), kSubmitAgainDelay, SubmitAgain{});
      return fail(overloaded(0, 1), Outcome::kOverloaded);
    case Code::kOutOfRange:
      return fail(context_exceeded(prompt().tokens.size(), engine_info_.context_tokens), Outcome::kTooLong);
    case Code::kInvalidArgument:
      if (job_.grammar.gbnf.empty()) break;
      return fail(invalid_request(fmt::format("{}: {}", job_.grammar.param, ended.status.message()),
                                  job_.grammar.param),
                  Outcome::kBadRequest);
    case Code::kOk:
      return fail(engine_failed("the engine ended the answer without saying why"), Outcome::kEngineError);
    default:
      break;
  }
  fail(engine_failed(ended.status.message()), Outcome::kEngineError);
}

void Generation::lose_engine() {
  uint32_t& losses = call_was_heard_ ? losses_ : unheard_losses_;
  if (++losses > (call_was_heard_ ? kLossesMax : kUnheardLossesMax)) {
    return fail(
        engine_failed(fmt::format("the engine was lost {} times while it answered this request", losses)),
        Outcome::kEngineError);
  }
  if (call_was_heard_) {
    environment_.probe->resubmissions.Increment();
    obs::warn("generation", "{}: engine lost after {} tokens, waiting for it", exchange_->request().id,
              tokens().size());
  }
  last_token_.reset();  // the pause is not the time between two tokens
  if (!std::exchange(away_, true)) wait_for_engine(environment_.limits.engine_wait);
  tell(environment_.admission, Admission::EngineLost{.ticket = ticket_});
}

// ---- what the client gets

void Generation::begin_stream() {
  HttpResponse head{.content_type = "text/event-stream"};
  head.headers = job_.response_headers;
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  exchange_->start_stream(std::move(head));
  Usage prompts;
  for (const Prompt& prompt : job_.prompts)
    prompts.prompt_tokens += static_cast<uint32_t>(prompt.tokens.size());
  write(job_.format->begin_stream(prompts));
  tell_after(self(), environment_.limits.keepalive, KeepAlive{});
}

void Generation::on(KeepAlive) {
  if (closed_) return;
  const auto silent = this->executor().now() - last_write_;
  const auto keepalive = environment_.limits.keepalive;
  if (silent < keepalive) return tell_after(self(), keepalive - silent, KeepAlive{});
  environment_.probe->keepalives.Increment();
  if (granted_) {
    write(job_.format->keep_alive());
  } else {
    last_write_ = this->executor().now();
    tell(environment_.admission, Admission::AskPosition{.ticket = ticket_});
  }
  tell_after(self(), keepalive, KeepAlive{});
}

void Generation::show(std::vector<AnswerPiece>& pieces) {
  for (AnswerPiece& piece : pieces) {
    if (job_.stream) {
      write(job_.format->piece(choice_, piece));
    } else {
      choices_[choice_].add(std::move(piece));
    }
  }
}

void Generation::write(std::string_view bytes) {
  if (closed_ || bytes.empty()) return;
  last_write_ = this->executor().now();
  exchange_->write(bytes);
  if (exchange_->buffered_bytes() <= environment_.limits.backlog_bytes_max) return;
  obs::warn("generation", "{}: the client does not read, {} bytes wait for it", exchange_->request().id,
            exchange_->buffered_bytes());
  exchange_->abort();
  leave_client();
}

void Generation::finish_choice(AnswerEnd end) {
  choice_done_ = true;
  std::vector<AnswerPiece> pieces;
  answer_->finish(end, pieces);
  show(pieces);
  if (closed_) return;

  auto [finish, cause] = how_it_ended(end, *answer_);
  if (job_.return_reuse && reuse_) finish.reuse = reuse_->to_json();
  count_choice(cause);
  note_answer();
  done_usage_ = usage();
  clock_.choice_ends(this->executor().now());
  done_usage_.timings = clock_.timings();
  if (choice_ + 1 == choices_.size()) finish.request = done_usage_;
  if (first_of_prompt() && reuse_) {  // else the engine never began
    if (!reuse_header_.empty()) reuse_header_ += ", ";
    reuse_header_ += reuse_->header_text();
  }
  choices_[choice_].finish = finish;
  if (job_.stream) write(job_.format->finish_choice(choice_, finish));
  if (closed_) return;
  if (choice_ + 1 == choices_.size()) {
    complete();
  } else if (call_ != nullptr) {
    end_call();  // the next choice begins when this call is over
  } else {
    next_choice();
  }
}

void Generation::count_choice(FinishCause cause) {
  const auto generated = static_cast<uint32_t>(tokens().size());
  GatewayProbe& probe = *environment_.probe;
  probe.finished(cause);
  probe.generated_thinking.Increment(answer_->reasoning_tokens());
  probe.generated_answer.Increment(generated - answer_->reasoning_tokens());
  if (!reuse_) return;  // the engine never began
  const uint32_t read =
      tokens().empty() && !finished_ ? progress_.processed : static_cast<uint32_t>(prompt().tokens.size());
  environment_.conversations->looked_up(*reuse_);
  environment_.conversations->prompt_read(*reuse_, read);
}

// Of each prompt's answers, in falling order; of equal ones the earlier first.
void Generation::keep_best() {
  std::vector<Choice> best;
  for (std::size_t first = 0; first < choices_.size(); first += job_.answers) {
    std::vector<std::size_t> order(job_.answers);
    std::iota(order.begin(), order.end(), first);
    std::ranges::stable_sort(order, std::greater<>(), [this](std::size_t i) { return ratings_[i].value(); });
    for (uint32_t i = 0; i < job_.choices; ++i) best.push_back(std::move(choices_[order[i]]));
  }
  choices_ = std::move(best);
}

void Generation::complete() {
  if (picks_best()) keep_best();
  if (job_.keep) return keep();
  say_end();
}

// Whoever hears the end may go on from it at once, so it is stored before.
void Generation::keep() {
  keeping_ = true;
  end_call();
  ResponseKeeper::Keep order{.owner = job_.name_space, .response = std::move(*job_.keep)};
  order.response.response = job_.format->record(choices_, done_usage_);
  order.reply = [weak = std::weak_ptr<Generation>(self())](Status status) {
    if (auto alive = weak.lock()) tell(alive, Kept{std::move(status)});
  };
  tell(environment_.keeper, std::move(order));
}

void Generation::on(const Kept& kept) {
  if (closed_) return;
  if (!kept.status.ok()) {
    obs::warn("generation", "{}: not stored: {}", exchange_->request().id, kept.status.message());
    job_.format->not_kept();
  }
  say_end();
}

void Generation::say_end() {
  if (job_.stream) {
    write(job_.format->end_stream(done_usage_));
    if (closed_) return;
    exchange_->finish();
  } else {
    job_.response_headers.emplace_back("X-Strata-Reuse", reuse_header_);
    exchange_->respond({.body = job_.format->whole(choices_, done_usage_), .headers = job_.response_headers});
  }
  environment_.probe->request_seconds.Observe(seconds(this->executor().now() - arrived_));
  close(past_deadline_ ? Outcome::kTimeout : Outcome::kOk);
}

void Generation::fail(ApiError error, Outcome outcome) {
  if (answer_ && !choice_done_) count_choice(FinishCause::kError);
  if (!exchange_->started()) {
    exchange_->respond(error_response(error, job_.dialect()));
  } else {
    write(job_.format->fail_stream(error));
    if (closed_) return;
    exchange_->finish();
  }
  close(outcome);
}

void Generation::on(ClientGone) {
  if (!closed_) leave_client();
}

void Generation::on(Stop) {
  if (!closed_) fail(shutting_down(), Outcome::kOverloaded);
}

void Generation::leave_client() {
  gone_at_ = this->executor().now();
  environment_.probe->disconnected(phase());
  if (answer_ && !choice_done_) count_choice(FinishCause::kCancelled);
  close(Outcome::kClientCancel);
}

std::optional<RunningView> Generation::running() const {
  if (!granted_ || closed_ || !chosen_) return {};
  return RunningView{.prompt_tokens = static_cast<uint32_t>(prompt().tokens.size()),
                     .generated_tokens = static_cast<uint32_t>(tokens().size()),
                     .max_tokens = job_.max_tokens,
                     .stream = job_.stream,
                     .sampling = job_.sampling};
}

Phase Generation::phase() const {
  if (!granted_) return Phase::kQueued;
  return !chosen_ || tokens().empty() ? Phase::kPrefill : Phase::kDecode;
}

// ---- the end

void Generation::close(Outcome outcome) {
  closed_ = true;
  environment_.probe->request_done(job_.endpoint, outcome);
  const Usage counted = answer_ && !choice_done_ ? usage() : done_usage_;
  const std::size_t warnings = job_.grammar.warnings.size();
  exchange_->set_log_detail(fmt::format(" outcome={} prompt={} generated={}{}{}{}", outcome_name(outcome),
                                        counted.prompt_tokens, counted.completion_tokens, reuse_ ? " " : "",
                                        reuse_ ? reuse_->log_text() : "",
                                        warnings > 0 ? fmt::format(" warnings={}", warnings) : ""));
  log_request(outcome, counted);
  end_call();
  if (call_ == nullptr) release();
}

// As the model wrote it: a stream shows it in pieces, and keeps none.
void Generation::note_answer() {
  if (environment_.request_log == nullptr || !environment_.request_log->wants_content()) return;
  spoken_.push_back(environment_.tokenizer->decode(tokens()));
}

void Generation::log_request(Outcome outcome, Usage counted) {
  if (environment_.request_log == nullptr) return;
  if (answer_ && spoken_.size() == choice_) note_answer();
  const Time now = this->executor().now();
  clock_.choice_ends(now);
  counted.timings = clock_.timings();
  const HttpRequest& request = exchange_->request();
  RequestRecord record{.ended = std::chrono::system_clock::now(),
                       .request_id = request.id,
                       .endpoint = job_.endpoint,
                       .key_hash = request.key_hash,
                       .outcome = outcome,
                       .status = exchange_->status(),
                       .took = now - arrived_,
                       .usage = counted,
                       .reuse = reuse_header_};
  if (environment_.request_log->wants_content())
    record.content = RequestContent{.request = request.body, .answers = std::move(spoken_)};
  environment_.request_log->add(std::move(record));
}

void Generation::end_call() {
  if (call_ != nullptr && !finished_) call_->cancel();
}

// The sequence is free for somebody else only when the call is really over.
void Generation::release() {
  tell(environment_.admission, Admission::Leave{.ticket = ticket_});
  if (auto over = std::exchange(on_over_, nullptr)) over(ticket_);
}

Usage Generation::usage() const {
  Usage all = done_usage_;
  all.completion_tokens += static_cast<uint32_t>(tokens().size());
  if (first_of_prompt()) {  // the others read it again, or do not have to; it is one prompt
    all.prompt_tokens += static_cast<uint32_t>(prompt().tokens.size());
    all.cached_tokens += reuse_ ? reuse_->reused_tokens() : 0;
    all.cache_creation_tokens += reuse_ ? reuse_->split().cache_creation_input_tokens : 0;
  }
  all.reasoning_tokens += answer_ ? answer_->reasoning_tokens() : 0;
  return all;
}

}  // namespace strata::gateway
