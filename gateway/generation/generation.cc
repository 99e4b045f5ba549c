#include "gateway/generation/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "services/obs/log.h"

namespace strata::gateway {

namespace {

using std::chrono::milliseconds;

// A timer keeps the memory of its request until it is due, long after the answer: at 200 answers a second,
// ten minutes of waiting would be 300 MB. So a long wait is a row of short ones.
constexpr milliseconds kLookIntervalMax{2000};

// Of answers that are over before they have begun.
constexpr TicketId kNoTicket = 0;

double seconds(actor::Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

void add(Usage& all, const Usage& one) {
  all.prompt_tokens += one.prompt_tokens;
  all.completion_tokens += one.completion_tokens;
  all.cached_tokens += one.cached_tokens;
  all.cache_creation_tokens += one.cache_creation_tokens;
  all.reasoning_tokens += one.reasoning_tokens;
  all.timings.prompt += one.timings.prompt;
  all.timings.predicted += one.timings.predicted;
}

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
    : Actor(executor),
      executor_(std::move(executor)),
      ticket_(ticket),
      environment_(std::move(environment)),
      exchange_(std::move(exchange)),
      job_(std::move(job)),
      on_over_(std::move(on_over)) {}

void Generation::on(Start) {
  arrived_ = last_write_ = this->executor().now();
  choices_.resize(job_.prompts.size() * job_.answers);
  stages_.resize(choices_.size(), Stage::kPending);
  ratings_.resize(choices_.size());
  read_.resize(job_.prompts.size());
  reuses_.resize(job_.prompts.size());
  std::weak_ptr<Generation> weak = self();
  exchange_->on_client_gone([weak] {
    if (auto alive = weak.lock()) tell(alive, ClientGone{});
  });
  in_line_ = true;
  submit(ticket_, /*further=*/false);
  give_up_at_ = arrived_ + environment_.limits.loading_wait;
  if (job_.timeout) deadline_ = arrived_ + *job_.timeout;
  look_at_clock_later();
}

// ---- what the admission says

void Generation::submit(TicketId ticket, bool further) {
  Admission::Submit order{.ticket = ticket,
                          .key = job_.name_space,
                          .priority = job_.priority,
                          .no_wait = !further && job_.no_wait,
                          .further = further};
  order.reply = [weak = std::weak_ptr<Generation>(self()), ticket](AdmissionNews news) {
    if (auto alive = weak.lock()) tell(alive, News{.ticket = ticket, .news = std::move(news)});
  };
  tell(environment_.admission, std::move(order));
}

void Generation::on(News news) {
  if (closed_) return;
  std::visit([&](const auto& one) { hear(news.ticket, one); }, news.news);
}

void Generation::hear(TicketId ticket, const Queued& queued) {
  if (ticket != ticket_ || !job_.stream) return;
  if (!exchange_->started()) begin_stream();
  write(job_.format->queued(queued.position));
}

void Generation::hear(TicketId ticket, const Granted& granted) {
  engine_info_ = granted.engine;
  if (ticket != ticket_) {
    if (further_ != ticket) return;  // it was given back meanwhile
    further_.reset();
    return run_next(ticket);
  }
  granted_ = true;
  give_up_at_.reset();
  queued_ = this->executor().now() - arrived_;
  environment_.probe->queue_seconds.Observe(seconds(queued_));
  if (const Prompt* too_long = first_too_long(job_.prompts, engine_info_.context_tokens)) {
    return fail(context_exceeded(too_long->tokens.size(), engine_info_.context_tokens), Outcome::kTooLong);
  }
  if (job_.stream && !exchange_->started()) begin_stream();
  if (!closed_) run_next(ticket);
}

void Generation::hear(TicketId ticket, const Refused& refused) {
  if (ticket == ticket_) return fail(refused.error, Outcome::kOverloaded);
  // The server is stopping: what runs goes on.
  further_.reset();
  further_refused_ = true;
}

void Generation::hear(TicketId ticket, const EngineBack& back) {
  engine_info_ = back.engine;
  for (const auto& run : runs_)
    if (run->ticket() == ticket) run->engine_is_back(back.engine);
}

void Generation::waits(AnswerRun&) { look_at_clock_later(); }

void Generation::look_at_clock_later() {
  const Time now = this->executor().now();
  std::optional<Time> due = give_up_at_;
  const auto sooner = [&due](std::optional<Time> at) {
    if (at && (!due || *at < *due)) due = at;
  };
  sooner(deadline_);
  for (const auto& run : runs_) sooner(run->gives_up_at());
  if (!due) return;
  sooner(now + kLookIntervalMax);
  if (next_look_ && *next_look_ <= *due) return;
  next_look_ = due;
  tell_after(self(), *due - now, LookAtClock{});
}

void Generation::on(LookAtClock) {
  const Time now = this->executor().now();
  if (closed_ || !next_look_ || now < *next_look_) return;
  next_look_.reset();
  if (deadline_ && now >= *deadline_) pass_deadline();
  if (closed_) return;
  if (give_up_at_ && now >= *give_up_at_) return fail(waited_too_long(), Outcome::kTimeout);
  const bool away = std::ranges::any_of(
      runs_, [now](const auto& run) { return run->gives_up_at() && now >= *run->gives_up_at(); });
  if (away) return fail(engine_away(), Outcome::kTimeout);
  look_at_clock_later();
}

// ---- answers and their sequences

// The next one that may begin: all but the first to a prompt wait until that has been read.
std::optional<uint32_t> Generation::next_answer() const {
  for (uint32_t choice = 0; choice < stages_.size(); ++choice) {
    if (stages_[choice] != Stage::kPending) continue;
    if (choice % job_.answers == 0 || read_[prompt_of(choice)]) return choice;
  }
  return {};
}

// In the sequence of this ticket, which goes back if there is none.
void Generation::run_next(TicketId ticket) {
  const auto choice = past_deadline_ ? std::nullopt : next_answer();
  if (!choice) return leave(ticket);
  const auto run = begin_answer(*choice, ticket);
  if (closed_) return;  // the client was slow to read and has been left
  run->begin();
  ask_for_further();
}

std::shared_ptr<AnswerRun> Generation::begin_answer(uint32_t choice, TicketId ticket) {
  stages_[choice] = Stage::kRunning;
  AnswerRun::Owner& owner = *this;
  auto run = std::make_shared<AnswerRun>(
      executor_, owner, environment_, job_, exchange_->request().id,
      AnswerRun::Place{.choice = choice, .ticket = ticket, .arrived = arrived_, .engine = engine_info_});
  runs_.push_back(run);
  if (job_.stream) write(job_.format->begin_choice(choice));
  if (!run->prompt().echo.empty()) {
    std::vector<AnswerPiece> pieces{{.text = run->prompt().echo}};
    show(*run, pieces);
  }
  return run;
}

// One at a time: so a request with many answers takes what is free, and for the rest its turn.
void Generation::ask_for_further() {
  const bool all_begun = std::ranges::find(stages_, Stage::kPending) == stages_.end();
  if (all_begun) return end_further();
  if (closed_ || keeping_ || further_ || further_refused_ || past_deadline_ || !next_answer()) return;
  further_ = ++*environment_.last_ticket;
  submit(*further_, /*further=*/true);
}

void Generation::end_further() {
  if (further_) leave(*std::exchange(further_, {}));
}

void Generation::prompt_was_read(AnswerRun& run) {
  read_[prompt_of(run.choice())] = true;
  ask_for_further();
}

void Generation::progressed(AnswerRun& run, const PromptProgress& progress) {
  if (closed_ || !job_.stream || !job_.return_progress) return;
  const auto elapsed = std::chrono::duration_cast<milliseconds>(this->executor().now() - arrived_);
  write(job_.format->progress(run.choice(), progress, static_cast<uint64_t>(elapsed.count())));
}

void Generation::ended(AnswerRun& run, AnswerEnd end) {
  const uint32_t choice = run.choice();
  stages_[choice] = Stage::kDone;
  ++done_;
  auto [finish, cause] = how_it_ended(end, run.answer());
  if (job_.return_reuse && run.reuse()) finish.reuse = run.reuse()->to_json();
  run.count(cause);
  note_answer(run);
  ratings_[choice] = run.rating();
  add(done_usage_, run.usage(this->executor().now()));
  if (run.first_of_prompt()) reuses_[prompt_of(choice)] = run.reuse();
  read_[prompt_of(choice)] = true;
  const bool last = done_ == choices_.size();
  if (last) finish.request = usage();
  choices_[choice].finish = finish;
  if (job_.stream) write(job_.format->finish_choice(choice, finish));
  if (!closed_ && last) complete();
}

// Told to itself, because it is said in the middle of everything.
void Generation::over(AnswerRun& run) { tell(self(), RunOver{.choice = run.choice()}); }

void Generation::on(RunOver over) {
  const auto found = std::ranges::find(runs_, over.choice, [](const auto& run) { return run->choice(); });
  const TicketId ticket = (*found)->ticket();
  runs_.erase(found);
  if (gone_at_) environment_.probe->cancel_seconds.Observe(seconds(this->executor().now() - *gone_at_));
  if (closed_) {
    leave(ticket);
    return end_if_idle();
  }
  if (runs_.empty() && !keeping_) return run_next(ticket);
  leave(ticket);
  ask_for_further();
}

// The sequence is free for somebody else only when the call is really over.
void Generation::leave(TicketId ticket) {
  if (ticket == kNoTicket || (ticket == ticket_ && !std::exchange(in_line_, false))) return;
  tell(environment_.admission, Admission::Leave{.ticket = ticket});
}

// What is there is given; the answers that have not begun are empty.
void Generation::pass_deadline() {
  deadline_.reset();
  if (keeping_) return;
  if (done_ == 0 && phase() != Phase::kDecode)
    return fail(deadline_passed(job_.timeout->count()), Outcome::kTimeout);
  past_deadline_ = true;
  end_further();
  for (const auto& run : std::vector(runs_)) {
    if (!closed_ && !keeping_ && !run->has_ended()) run->end(AnswerEnd::kDeadline);
  }
  for (uint32_t choice = 0; choice < stages_.size() && !closed_ && !keeping_; ++choice) {
    if (stages_[choice] != Stage::kPending) continue;
    const auto run = begin_answer(choice, kNoTicket);
    if (!closed_) run->end(AnswerEnd::kDeadline);
  }
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

void Generation::show(AnswerRun& run, std::vector<AnswerPiece>& pieces) {
  for (AnswerPiece& piece : pieces) {
    if (job_.stream) {
      write(job_.format->piece(run.choice(), piece));
    } else {
      choices_[run.choice()].add(std::move(piece));
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
  if (job_.picks_best()) keep_best();
  if (job_.keep) return keep();
  say_end();
}

// Whoever hears the end may go on from it at once, so it is stored before.
void Generation::keep() {
  keeping_ = true;
  ResponseKeeper::Keep order{.owner = job_.name_space, .response = std::move(*job_.keep)};
  job_.keep.reset();
  order.response.response = job_.format->record(choices_, usage());
  order.reply = [weak = std::weak_ptr<Generation>(self())](Status status) {
    if (auto alive = weak.lock()) tell(alive, Kept{std::move(status)});
  };
  tell(environment_.keeper, std::move(order));
}

// A response of which the client has heard the id can be looked up, however it ended. error: null where the
// client has left.
void Generation::keep_unfinished(const ApiError* error) {
  if (!job_.keep || !job_.stream || !exchange_->started()) return;
  ResponseKeeper::Keep order{.owner = job_.name_space, .response = std::move(*job_.keep)};
  job_.keep.reset();
  order.response.response = job_.format->record_unfinished(error);
  order.reply = [id = exchange_->request().id](const Status& status) {
    if (!status.ok()) obs::warn("generation", "{}: not stored: {}", id, status.message());
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
    write(job_.format->end_stream(usage()));
    if (closed_) return;
    exchange_->finish();
  } else {
    job_.response_headers.emplace_back("X-Strata-Reuse", reuse_header());
    exchange_->respond({.body = job_.format->whole(choices_, usage()), .headers = job_.response_headers});
  }
  environment_.probe->request_seconds.Observe(seconds(this->executor().now() - arrived_));
  close(past_deadline_ ? Outcome::kTimeout : Outcome::kOk);
}

void Generation::fail(ApiError error, Outcome outcome) {
  count_running(FinishCause::kError);
  if (!exchange_->started()) {
    exchange_->respond(error_response(error, job_.dialect()));
  } else {
    const std::string said = job_.format->fail_stream(error);
    keep_unfinished(&error);
    write(said);
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
  count_running(FinishCause::kCancelled);
  keep_unfinished(nullptr);
  close(Outcome::kClientCancel);
}

void Generation::count_running(FinishCause cause) const {
  for (const auto& run : runs_)
    if (!run->has_ended()) run->count(cause);
}

std::vector<RunningView> Generation::running() const {
  std::vector<RunningView> views;
  if (closed_) return views;
  for (const auto& run : runs_) {
    if (run->has_ended()) continue;
    views.push_back({.ticket = run->ticket(),
                     .prompt_tokens = static_cast<uint32_t>(run->prompt().tokens.size()),
                     .generated_tokens = static_cast<uint32_t>(run->tokens().size()),
                     .max_tokens = job_.max_tokens,
                     .stream = job_.stream,
                     .sampling = job_.sampling});
  }
  return views;
}

Phase Generation::phase() const {
  if (!granted_) return Phase::kQueued;
  const bool speaks =
      done_ > 0 || std::ranges::any_of(runs_, [](const auto& run) { return !run->tokens().empty(); });
  return speaks ? Phase::kDecode : Phase::kPrefill;
}

// ---- the end

void Generation::close(Outcome outcome) {
  closed_ = true;
  environment_.probe->request_done(job_.endpoint, outcome);
  Usage counted = usage();
  std::optional<ReuseReport> reuse = reuses_.empty() ? std::nullopt : reuses_.front();
  for (const auto& run : runs_) {
    if (run->has_ended()) continue;
    add(counted, run->usage(this->executor().now()));
    if (run->choice() == 0) reuse = run->reuse();
    note_answer(*run);
  }
  const std::size_t warnings = job_.grammar.warnings.size();
  exchange_->set_log_detail(fmt::format(" outcome={} prompt={} generated={}{}{}{}", outcome_name(outcome),
                                        counted.prompt_tokens, counted.completion_tokens, reuse ? " " : "",
                                        reuse ? reuse->log_text() : "",
                                        warnings > 0 ? fmt::format(" warnings={}", warnings) : ""));
  log_request(outcome, counted);
  end_further();
  for (const auto& run : runs_) run->close();
  end_if_idle();
}

// As the model wrote it: a stream shows it in pieces, and keeps none.
void Generation::note_answer(const AnswerRun& run) {
  if (environment_.request_log == nullptr || !environment_.request_log->wants_content()) return;
  if (spoken_.size() <= run.choice()) spoken_.resize(run.choice() + 1);
  spoken_[run.choice()] = environment_.tokenizer->decode(run.tokens());
}

void Generation::log_request(Outcome outcome, const Usage& counted) {
  if (environment_.request_log == nullptr) return;
  const HttpRequest& request = exchange_->request();
  RequestRecord record{.ended = std::chrono::system_clock::now(),
                       .request_id = request.id,
                       .endpoint = job_.endpoint,
                       .key_hash = request.key_hash,
                       .outcome = outcome,
                       .status = exchange_->status(),
                       .took = this->executor().now() - arrived_,
                       .usage = counted,
                       .reuse = reuse_header()};
  if (environment_.request_log->wants_content())
    record.content = RequestContent{.request = request.body, .answers = std::move(spoken_)};
  environment_.request_log->add(std::move(record));
}

// Of the prompts that the engine has begun to read and answered.
std::string Generation::reuse_header() const {
  std::string text;
  for (const auto& reuse : reuses_) {
    if (!reuse) continue;
    if (!text.empty()) text += ", ";
    text += reuse->header_text();
  }
  return text;
}

void Generation::end_if_idle() {
  if (!runs_.empty()) return;
  leave(ticket_);
  if (auto over = std::exchange(on_over_, nullptr)) over(ticket_);
}

// Of the answers that have ended.
Usage Generation::usage() const {
  Usage all = done_usage_;
  all.timings.queue = queued_;
  return all;
}

}  // namespace strata::gateway
