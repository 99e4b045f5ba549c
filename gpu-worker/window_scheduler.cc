#include "gpu-worker/window_scheduler.h"

#include <algorithm>
#include <utility>

#include "gpu-worker/answer_constraint.h"
#include "services/base/check.h"

namespace strata::gpu_worker {

namespace {

// How long a newcomer waits for the conversation in its place to be parked.
constexpr std::chrono::seconds kPatience{1};

double seconds(WindowScheduler::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

void count(std::atomic<uint64_t>& counter, uint64_t by) { counter.fetch_add(by, std::memory_order_relaxed); }

}  // namespace

WindowScheduler::WindowScheduler(const WindowSchedulerOptions& options)
    : options_(options), sequences_(*options.device) {
  CHECK(options_.prefill_chunk_tokens > 0);
  CHECK(options_.context_tokens > 0);
  if (!options_.finish_constraint) {
    options_.finish_constraint = [](const std::shared_ptr<Generation>& generation, const auto&) {
      generation->constraint()->finish();
    };
  }
  if (options_.store == nullptr) return;
  parking_.emplace(ParkingOptions{.device = options_.device,
                                  .sequences = &sequences_,
                                  .store = options_.store,
                                  .park_after = options_.park_after,
                                  .seconds_per_token = [this] { return seconds_per_token(); },
                                  .wake = options_.wake,
                                  .on_restored = options_.on_restored});
}

void WindowScheduler::drop_cancelled(std::vector<PostedEvent>& events) {
  const Status cancelled(Code::kCancelled, "cancelled by the caller");
  for (const auto& running : running_) {
    const AnswerConstraint* constraint = running->generation->constraint();
    if (running->generation->cancelled()) {
      end(*running, cancelled, events);
    } else if (constraint != nullptr && constraint->ready() && !constraint->finished().ok()) {
      end(*running, constraint->finished(), events);
    }
  }
  end_arrivals(cancelled, events, [](const Arrival& each) { return each.running->generation->cancelled(); });
  sweep();
}

void WindowScheduler::admit(std::shared_ptr<Generation> generation, std::vector<PostedEvent>& events) {
  const GenerationRequest& request = generation->request();
  if (generation->cancelled()) {
    events.push_back({generation->listener(), Status(Code::kCancelled, "cancelled by the caller"), {}});
    return;
  }
  auto running = std::make_unique<Running>();
  running->generation = generation;
  running->number = ++admissions_;
  running->prompt_count = static_cast<uint32_t>(request.prompt.size());
  // Room for the whole answer now, so that no window grows it.
  std::size_t answer_max = std::max<std::size_t>(request.max_tokens, request.generated.size());
  running->tokens.reserve(std::min<std::size_t>(request.prompt.size() + answer_max, options_.context_tokens) +
                          1);
  running->tokens.assign(request.prompt.begin(), request.prompt.end());
  running->tokens.insert(running->tokens.end(), request.generated.begin(), request.generated.end());
  running->admitted = running->first_window = Clock::now();
  Arrival arrival{.running = std::move(running),
                  .patient_until = options_.now() + kPatience,
                  .restoring = {},
                  .restored = !parking_ || request.parked_id.is_zero()};
  if (arrive(arrival, events) == Arrived::kNotYet) arrivals_.push_back(std::move(arrival));
  sweep();
}

WindowScheduler::Arrived WindowScheduler::arrive(Arrival& arrival, std::vector<PostedEvent>& events) {
  Result<std::optional<KeptSequences::Begun>> begun = find_state(arrival);
  if (!begun && begun.error().code() == Code::kUnavailable) return Arrived::kNotYet;
  if (!begun) {
    events.push_back({arrival.running->generation->listener(), std::move(begun).error(), {}});
    return Arrived::kYes;
  }
  if (!*begun) return Arrived::kNotYet;
  begin(std::move(arrival.running), **begun, events);
  return Arrived::kYes;
}

// Nothing: it is being restored.
Result<std::optional<KeptSequences::Begun>> WindowScheduler::find_state(Arrival& arrival) {
  const bool patient = options_.now() < arrival.patient_until;
  const auto patience = patient ? KeptSequences::Patience::kUntilParked : KeptSequences::Patience::kNone;
  if (!arrival.restored) {
    TRY(auto restored, restore(arrival, patience));
    if (restored || !arrival.restored) return restored;
  }
  const GenerationRequest& request = arrival.running->generation->request();
  TRY(auto begun,
      sequences_.begin(arrival.running->tokens, request.name_space, request.shared_tokens, patience));
  return begun;
}

Result<std::optional<KeptSequences::Begun>> WindowScheduler::restore(Arrival& arrival,
                                                                     KeptSequences::Patience patience) {
  const GenerationRequest& request = arrival.running->generation->request();
  const std::vector<int32_t>& tokens = arrival.running->tokens;
  const auto without = [&](std::string why) {
    arrival.restored = true;
    arrival.running->not_restored = std::move(why);
    return std::optional<KeptSequences::Begun>();
  };
  if (!arrival.restoring) {
    if (request.parked_tokens >= tokens.size() ||
        request.parked_tokens <= sequences_.known(tokens, request.name_space))
      return without({});
    Result<uint64_t> number = parking_->restore({.id = request.parked_id, .tokens = request.parked_tokens},
                                                tokens, request.name_space, request.shared_tokens, patience);
    if (!number && number.error().code() == Code::kUnavailable) return forward_failure(std::move(number));
    if (!number) return without(number.error().message());
    arrival.restoring = *number;
  }
  auto done = parking_->take_restored(*arrival.restoring);
  if (!done) return std::nullopt;
  arrival.restoring.reset();
  if (!done->status.ok()) return without(done->status.message());
  arrival.restored = true;
  arrival.running->pages = std::move(done->pages);
  return KeptSequences::Begun{done->sequence, request.parked_tokens,
                              done->from_disk ? ReuseSource::kDisk : ReuseSource::kRam};
}

void WindowScheduler::begin(std::unique_ptr<Running> running, const KeptSequences::Begun& begun,
                            std::vector<PostedEvent>& events) {
  running->sequence = begun.sequence;
  running->fed = running->reused = begun.reused;
  running->source = begun.source;
  running->checkpoints = checkpoints_of(*running);
  if (running->pages == nullptr) events.push_back({running->generation->listener(), progress(*running), {}});
  const uint32_t max_tokens = running->generation->request().max_tokens;
  Running& admitted = *running_.emplace_back(std::move(running));
  // A resubmitted answer may have been complete but for its last event.
  if (admitted.answer_count() >= max_tokens) {
    end(admitted, summary(admitted, EndReason::kLength), events);
  } else if (admitted.tokens.size() >= options_.context_tokens) {
    end(admitted, summary(admitted, EndReason::kContext), events);
  }
}

void WindowScheduler::step(std::vector<PostedEvent>& events) {
  stepped_ = options_.now();
  if (parking_) parking_->take_in(stepped_);
  if (!arrivals_.empty()) {
    for (Arrival& each : std::exchange(arrivals_, {})) {
      if (arrive(each, events) == Arrived::kNotYet) arrivals_.push_back(std::move(each));
    }
    sweep();
  }
  if (parking_) parking_->park_next(stepped_);
  tell_states(events);
}

bool WindowScheduler::park_rest(std::vector<PostedEvent>& events) {
  if (!parking_) return false;
  sequences_.leave();
  step(events);
  return parking_->parks();
}

std::optional<WindowScheduler::Clock::time_point> WindowScheduler::wakes_at() const {
  std::optional<Clock::time_point> at;
  if (parking_) at = parking_->wakes_at();
  for (const Arrival& arrival : arrivals_) {
    if (arrival.patient_until > stepped_)
      at = std::min(at.value_or(arrival.patient_until), arrival.patient_until);
  }
  return at;
}

void WindowScheduler::tell_states(std::vector<PostedEvent>& events) {
  if (!options_.on_states) return;
  std::vector<StateChange> changes = sequences_.take_changes();
  if (changes.empty()) return;
  events.push_back(
      {nullptr, {}, [tell = options_.on_states, changes = std::move(changes)] { tell(changes); }});
}

// As measured since the process began.
double WindowScheduler::seconds_per_token() const {
  const uint64_t tokens = options_.counters->chunk_tokens.load(std::memory_order_relaxed);
  const uint64_t nanoseconds = options_.counters->prefill_ns.load(std::memory_order_relaxed);
  return static_cast<double>(nanoseconds) * 1e-9 / static_cast<double>(std::max<uint64_t>(tokens, 1));
}

template <class Which>
void WindowScheduler::end_arrivals(const Status& why, std::vector<PostedEvent>& events, Which which) {
  std::erase_if(arrivals_, [&](const Arrival& each) {
    if (!which(each)) return false;
    if (each.restoring) parking_->give_up(*each.restoring);
    events.push_back({each.running->generation->listener(), why, {}});
    return true;
  });
}

void WindowScheduler::end_all(const Status& why, std::vector<PostedEvent>& events) {
  for (const auto& running : running_) end(*running, why, events);
  end_arrivals(why, events, [](const Arrival&) { return true; });
  sweep();
}

bool WindowScheduler::Running::waits() const {
  const AnswerConstraint* constraint = generation->constraint();
  return constraint != nullptr && !constraint->ready();
}

bool WindowScheduler::idle() const {
  return std::ranges::all_of(running_, [](const auto& running) { return running->waits(); });
}

bool WindowScheduler::decoding() const {
  return std::ranges::any_of(running_,
                             [](const auto& running) { return running->decodes() && !running->waits(); });
}

void WindowScheduler::run_window(std::vector<PostedEvent>& events) {
  Clock::time_point begin = Clock::now();
  compose();
  Status status = options_.device->run_window(rows_, choices_);
  if (!status.ok()) {
    Status reason(status.code(), fmt::format("the window failed: {}", status.message()));
    for (const Part& part : parts_) end(*part.running, reason, events, State::kUnknown);
    sweep();
    return;
  }
  if (recording_ != nullptr) log_routing(events);
  auto choice = choices_.begin();
  for (const Part& part : parts_) end_part(part, choice, events);
  count_window(Clock::now() - begin);
  sweep();
}

void WindowScheduler::end_part(const Part& part, std::vector<RowChoice>::iterator& choice,
                               std::vector<PostedEvent>& events) {
  Running& running = *part.running;
  RowChoice* chosen = nullptr;
  if (running.fed + part.rows == running.tokens.size()) {
    CHECK(choice != choices_.end() && choice->row == part.first_row + part.rows - 1, "row {} has no choice",
          part.first_row + part.rows - 1);
    chosen = &*choice++;
  }
  if (!pages_came(running, events)) return;
  running.fed += part.rows;
  take_answer_checkpoint(running);
  if (!part.decode && running.fed <= running.prompt_count) {
    events.push_back({running.generation->listener(), progress(running), {}});
  }
  if (chosen != nullptr) take_choice(running, *chosen, events);
}

// False: the window has read on from something that is no state.
bool WindowScheduler::pages_came(Running& running, std::vector<PostedEvent>& events) {
  if (running.pages == nullptr) return true;
  const Status status = std::exchange(running.pages, nullptr)->wait();
  if (status.ok()) {
    events.push_back({running.generation->listener(), progress(running), {}});
  } else {
    arrive_again(running, status);
  }
  return status.ok();
}

// From the next best state. Nothing has been said yet.
void WindowScheduler::arrive_again(Running& running, const Status& why) {
  sequences_.close(running.sequence);
  auto again = std::make_unique<Running>();
  again->generation = std::exchange(running.generation, nullptr);
  again->number = running.number;
  again->prompt_count = running.prompt_count;
  again->tokens = std::move(running.tokens);
  again->not_restored = why.message();
  again->admitted = again->first_window = running.admitted;
  arrivals_.push_back({.running = std::move(again),
                       .patient_until = options_.now() + kPatience,
                       .restoring = {},
                       .restored = true});
}

// Before the events of the window: whoever hears of the last token finds its rows on their way.
void WindowScheduler::log_routing(std::vector<PostedEvent>& events) {
  routed_rows_.clear();
  for (const Part& part : parts_) {
    for (uint32_t i = 0; i < part.rows; ++i) {
      const DeviceRow& row = rows_[part.first_row + i];
      routed_rows_.push_back({.sequence = routing_sequence(row.sequence),
                              .position = part.running->fed + i,
                              .token = row.token,
                              .is_prompt = row.is_prompt});
    }
  }
  recording_->add(routed_rows_, options_.device->routed());
  events.push_back({nullptr, {}, [log = recording_] { log->tell(); }});
}

void WindowScheduler::compose() {
  parts_.clear();
  rows_.clear();
  choices_.clear();
  for (const auto& running : running_) {
    if (running->decodes() && !running->waits()) add_rows(*running, 1, true);
  }
  if (Running* running = next_catching_up(); running != nullptr) {
    last_caught_up_number_ = running->number;
    add_rows(*running, chunk_rows(*running), false);
  }
}

uint32_t WindowScheduler::chunk_rows(const Running& running) const {
  // A chunk ends with the prompt: what comes after it was generated, and generated tokens take the window
  // path.
  const bool in_prompt = running.fed < running.prompt_count;
  const uint32_t last = in_prompt ? running.prompt_count : static_cast<uint32_t>(running.tokens.size());
  const uint32_t end = std::min(last, running.fed + options_.prefill_chunk_tokens);
  if (!options_.device->captures_within_windows() && running.next_checkpoint < running.checkpoints.size() &&
      running.checkpoints[running.next_checkpoint].tokens <= end) {
    return running.checkpoints[running.next_checkpoint].tokens - running.fed;
  }
  if (!in_prompt || end == last) return end - running.fed;
  // Only a chunk that is smaller than the multiple ends elsewhere.
  const uint32_t multiple = options_.device->prompt_multiple(), whole = end / multiple * multiple;
  return (whole > running.fed ? whole : end) - running.fed;
}

void WindowScheduler::add_rows(Running& running, uint32_t count, bool decode) {
  parts_.push_back({&running, static_cast<uint32_t>(rows_.size()), count, decode});
  for (uint32_t index = running.fed; index < running.fed + count; ++index) {
    DeviceRow row{.sequence = running.sequence,
                  .token = running.tokens[index],
                  .is_prompt = index < running.prompt_count,
                  .sample = {},
                  .pages = running.pages.get()};
    if (index + 1 == running.tokens.size()) {
      std::span<const int32_t> tokens(running.tokens);
      row.sample = {.params = &running.generation->request().sampling,
                    .position = tokens.size(),
                    .prompt = tokens.first(running.prompt_count),
                    .generated = tokens.subspan(running.prompt_count)};
      if (const AnswerConstraint* constraint = running.generation->constraint())
        row.sample.mask = constraint->mask();
    }
    rows_.push_back(row);
  }
  plan_checkpoints(parts_.back());
}

WindowScheduler::Running* WindowScheduler::next_catching_up() {
  Running* first = nullptr;
  for (const auto& running : running_) {
    if (running->decodes()) continue;
    if (running->number > last_caught_up_number_) return running.get();
    if (first == nullptr) first = running.get();
  }
  return first;
}

void WindowScheduler::take_choice(Running& running, RowChoice& choice, std::vector<PostedEvent>& events) {
  if (!running.caught_up) {
    running.caught_up = true;
    running.first_window = Clock::now();
  }
  if (!choice.usable) {
    Status broken(
        Code::kInternal,
        fmt::format("the logits after token {} of the sequence are not usable (not a number, infinite or "
                    "all equal)",
                    running.tokens.size() - 1));
    return end(running, std::move(broken), events, State::kUnknown);
  }
  const GenerationRequest& request = running.generation->request();
  AnswerConstraint* constraint = running.generation->constraint();
  int32_t id = choice.token.id;
  if (std::find(request.end_tokens.begin(), request.end_tokens.end(), id) != request.end_tokens.end() ||
      (constraint != nullptr && constraint->ends_with(id))) {
    GenerationEnded ended = summary(running, EndReason::kEndToken);
    ended.end_token = id;
    return end(running, ended, events);
  }
  events.push_back(
      {running.generation->listener(), TokenChosen{running.answer_count(), std::move(choice.token)}, {}});
  running.tokens.push_back(id);
  count(options_.counters->generated_tokens, 1);
  if (running.answer_count() >= request.max_tokens) {
    end(running, summary(running, EndReason::kLength), events);
  } else if (running.tokens.size() >= options_.context_tokens) {
    end(running, summary(running, EndReason::kContext), events);
  } else if (constraint != nullptr) {
    // The next window's mask, now that its token is known.
    Status accepted = constraint->accept(id);
    if (!accepted.ok()) return end(running, std::move(accepted), events);
    if (constraint->ready()) return;
    count(options_.counters->late_masks, 1);
    options_.finish_constraint(running.generation, options_.wake);
  }
}

// The wishes beyond what is reused. Where chunks are cut at multiples, states lie there, too.
std::vector<CheckpointWish> WindowScheduler::checkpoints_of(const Running& running) const {
  std::vector<CheckpointWish> wishes;
  const uint32_t multiple = options_.device->prompt_multiple();
  uint32_t before = running.fed;
  for (CheckpointWish wish : running.generation->request().checkpoints) {
    wish.tokens = wish.tokens / multiple * multiple;
    if (wish.tokens <= before) continue;
    wishes.push_back(wish);
    before = wish.tokens;
  }
  return wishes;
}

// Those within the part's rows. They count as kept before they are there: nobody looks until the window is
// over, and one that fails closes its sequences.
void WindowScheduler::plan_checkpoints(const Part& part) {
  Running& running = *part.running;
  const std::span<DeviceRow> rows = std::span(rows_).subspan(part.first_row, part.rows);
  for (; running.next_checkpoint < running.checkpoints.size(); ++running.next_checkpoint) {
    const CheckpointWish& wish = running.checkpoints[running.next_checkpoint];
    if (wish.tokens > running.fed + part.rows) return;
    const auto slot =
        sequences_.checkpoint(running.sequence, std::span(running.tokens).first(wish.tokens), wish.kind);
    if (!slot) continue;
    // With few slots an earlier one may have lost its own to this one.
    for (DeviceRow& row : rows) {
      if (row.capture == slot) row.capture.reset();
    }
    rows[wish.tokens - running.fed - 1].capture = slot;
    running.kept = wish.tokens;
  }
}

void WindowScheduler::take_answer_checkpoint(const Running& running) {
  const uint32_t every = running.generation->request().answer_checkpoint_tokens;
  if (every > 0 && running.fed > running.prompt_count && (running.fed - running.prompt_count) % every == 0) {
    sequences_.checkpoint_answer(running.sequence, std::span(running.tokens).first(running.fed));
  }
}

PromptProgressed WindowScheduler::progress(const Running& running) {
  return {.total = running.prompt_count,
          .cached = std::min(running.reused, running.prompt_count),
          .processed = std::min(running.fed, running.prompt_count),
          .kept = running.kept};
}

void WindowScheduler::end(Running& running, GenerationEvent event, std::vector<PostedEvent>& events,
                          State state) {
  // Given back before it is reported: whoever hears of the end may submit the next request at once.
  if (state == State::kGood && running.pages == nullptr) {
    sequences_.keep(running.sequence, std::span(running.tokens).first(running.fed), running.prompt_count,
                    options_.now());
  } else {
    sequences_.close(running.sequence);
  }
  events.push_back({running.generation->listener(), std::move(event), {}});
  running.generation = nullptr;
}

void WindowScheduler::sweep() {
  std::erase_if(running_, [](const auto& running) { return running->generation == nullptr; });
  options_.counters->sequences_running.store(static_cast<uint32_t>(running_.size() + arrivals_.size()),
                                             std::memory_order_relaxed);
}

// A window that held both kinds of rows is shared out by their number.
void WindowScheduler::count_window(Clock::duration took) {
  LoopCounters& counters = *options_.counters;
  uint64_t decode_rows = 0;
  for (const Part& part : parts_) {
    if (part.decode) {
      decode_rows += part.rows;
    } else {
      auto bucket =
          std::lower_bound(kChunkBounds.begin(), kChunkBounds.end(), part.rows) - kChunkBounds.begin();
      count(counters.chunk_buckets[static_cast<std::size_t>(bucket)], 1);
      count(counters.chunk_tokens, part.rows);
    }
  }
  double decode_share = static_cast<double>(decode_rows) / static_cast<double>(rows_.size());
  auto nanoseconds = static_cast<double>(std::chrono::nanoseconds(took).count());
  count(counters.windows, 1);
  count(counters.decode_windows, decode_rows > 0 ? 1 : 0);
  count(counters.decode_ns, static_cast<uint64_t>(nanoseconds * decode_share));
  count(counters.prefill_ns, static_cast<uint64_t>(nanoseconds * (1 - decode_share)));
  StageSeconds stages = options_.device->take_stages();
  for (std::size_t i = 0; i < kStages; ++i) {
    count(counters.stage_ns[i], static_cast<uint64_t>(stages[i] * decode_share * 1e9));
  }
}

GenerationEnded WindowScheduler::summary(const Running& running, EndReason reason) const {
  GenerationEnded ended{.reason = reason};
  ended.prompt_tokens_reused = std::min(running.reused, running.prompt_count);
  ended.prompt_tokens_computed = std::min(running.fed, running.prompt_count) - ended.prompt_tokens_reused;
  ended.source = running.source;
  ended.not_restored = running.not_restored;
  ended.generated_tokens = running.answer_count();
  Clock::time_point now = Clock::now();
  Clock::time_point first = running.caught_up ? running.first_window : now;
  ended.prefill_seconds = seconds(first - running.admitted);
  ended.decode_seconds = seconds(now - first);
  return ended;
}

}  // namespace strata::gpu_worker
