#include "cache-manager/exchange_actor.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/obs/log.h"
#include "services/sys/crash_point.h"

namespace strata::cache_manager {

using residency::SlotView;

namespace {

constexpr std::chrono::milliseconds kTryAgainAfter{10};
// After a look, in units of the time it took: large models' looks take long enough to be felt by the expert
// workers if each window had one.
constexpr int kPausePerLook = 10;

uint64_t largest(const std::vector<uint64_t>& record_bytes) {
  return record_bytes.empty() ? 1 : *std::ranges::max_element(record_bytes);
}

}  // namespace

ExchangeActor::ExchangeActor(std::shared_ptr<actor::Executor> executor, ExchangeOptions options,
                             LearnedProfile learned, const Parts& parts)
    : Actor(std::move(executor)),
      options_(std::move(options)),
      learned_(std::move(learned)),
      link_(*parts.link),
      copier_(*parts.copier),
      watch_(*parts.watch),
      probe_(*parts.probe),
      control_(options_.policy, options_.rates, static_cast<uint32_t>(options_.experts_per_layer.size())),
      budget_(control_.limits(), largest(options_.record_bytes)),
      layer_exchanges_(options_.experts_per_layer.size()) {}

void ExchangeActor::on(Start) {
  on(Attach{});
  actor::tell_after(self(), options_.save_every, SaveSometimes{});
}

// --- the attachment

void ExchangeActor::on(Attach) {
  if (stopped_) return;
  // A copy of the attachment before must not be writing into a slot that a new one has promised to another
  // expert.
  if (copies_running_ > 0) return actor::tell_after(self(), options_.attach_retry, Attach{});
  uint64_t attachment = ++attachment_;
  std::weak_ptr<ExchangeActor> weak = self();
  link_.attach({.granted =
                    [weak, attachment](std::shared_ptr<Grant> grant) {
                      if (auto actor = weak.lock()) actor::tell(actor, Granted{attachment, std::move(grant)});
                    },
                .ended =
                    [weak, attachment](Status why) {
                      if (auto actor = weak.lock()) actor::tell(actor, Ended{attachment, std::move(why)});
                    }});
}

void ExchangeActor::on(Granted message) {
  if (message.attachment != attachment_ || stopped_) return;
  const shm::UsageHeader& shape = message.grant->usage.header();
  if (shape.layers != learned_.profile().layers || shape.experts != learned_.profile().experts) {
    return give_up_attachment(fail(
        Code::kFailedPrecondition, "the usage board counts {} layers of {} experts, the model has {} of {}",
        shape.layers, shape.experts, learned_.profile().layers, learned_.profile().experts));
  }
  begin_attachment(std::move(message.grant));
  auto made = control_.make_policy(std::bind_front(&ExchangeActor::make_policy, this), policy_options());
  if (!made) return give_up_attachment(made.error());
  if (!made->forgotten.ok())
    obs::warn("exchange", "quotas and pins are forgotten: {}", made->forgotten.message());
  policy_ = std::move(made->policy);
  last_end_.clear();
  obs::info("exchange", "attached: {} slots, {} in use, policy {}", grant_->slot_count, slots_.used(),
            policy_->name());
  watch_.begin(grant_, [weak = std::weak_ptr(self())] {
    auto actor = weak.lock();
    if (actor == nullptr || actor->look_asked_.exchange(true)) return;
    actor::tell(actor, Look{});
  });
  propose(Propose::kUrgent);
  publish();
}

void ExchangeActor::begin_attachment(std::shared_ptr<Grant> grant) {
  grant_ = std::move(grant);
  usage_.begin(grant_->usage);
  looked_ = executor().now();
  slots_ = SlotPicture(grant_->slot_count, grant_->usage.header().layers);
  for (uint32_t slot = 0; slot < grant_->slot_count; ++slot) slots_.set(slot, view_of(slot));
}

residency::PolicyOptions ExchangeActor::policy_options() const {
  const shm::UsageHeader& shape = grant_->usage.header();
  return {.shape = {.layers = shape.layers, .experts = shape.experts},
          .slots = grant_->slot_count,
          .decay_tokens = options_.decay_tokens,
          .profile = {},
          .topics = {},
          .experts_of_layer = options_.experts_per_layer};
}

Result<std::unique_ptr<residency::Policy>> ExchangeActor::make_policy(
    std::string_view name, residency::PolicyOptions options) const {
  const bool by_configuration = name == "static" && !options_.static_profile.empty();
  options.profile = by_configuration ? options_.static_profile : learned_.shares();
  options.topics = learned_.profile().topics;
  return options_.make_policy(name, std::move(options));
}

void ExchangeActor::keep_topics() {
  if (policy_ == nullptr || policy_->topics().empty()) return;
  learned_.keep_topics(policy_->topics());
}

void ExchangeActor::on(Ended message) {
  if (message.attachment != attachment_) return;
  keep_topics();
  if (std::exchange(last_end_, message.why.message()) != message.why.message()) {
    obs::warn("exchange", "not attached to the gpu-worker ({}); trying again", message.why.message());
  }
  if (!in_flight_.empty()) probe_.dropped(DropReason::kDetached, in_flight_.size());
  watch_.end();
  grant_ = nullptr;
  policy_ = nullptr;
  slots_ = {};
  in_flight_.clear();
  retiring_ = landing_ = abandoning_ = false;
  put_off_.reset();
  publish();
  answer_stop();
  actor::tell_after(self(), options_.attach_retry, Attach{});
}

// What the two sides believe may differ from here on. A new attachment puts that right: the gpu-worker then
// empties what was reserved.
void ExchangeActor::give_up_attachment(const Status& why) {
  obs::warn("exchange", "giving up the attachment: {}", why.message());
  link_.detach();
}

// --- after each window

void ExchangeActor::on(Look) {
  look_asked_.store(false);  // before reading: a window that finishes from here on asks again
  if (policy_ == nullptr) return;
  const actor::Clock::time_point now = executor().now();
  if (now < next_look_) {
    if (!look_asked_.exchange(true)) actor::tell_after(self(), next_look_ - now, Look{});
    return;
  }
  const UsageReader::Delta delta = usage_.take(grant_->usage);
  // Nothing is exchanged for nobody: without new tokens there is no new reason.
  if (delta.windows == 0) return;
  budget_.passed(delta.windows, seconds_since(std::exchange(looked_, now)));
  policy_->observe(delta.usage);
  if (delta.usage.decode_tokens > 0) learned_.add(delta.usage.decode_uses, delta.usage.decode_tokens);
  propose(Propose::kAll);
  next_look_ = now + (executor().now() - now) * kPausePerLook;
}

void ExchangeActor::propose(Propose what) {
  if (stopped_ || policy_ == nullptr) return;
  if (retiring_) {
    if (put_off_ != Propose::kAll) put_off_ = what;
    return;
  }
  const std::vector<SlotExchange> exchanges = choose(what);
  if (exchanges.empty()) return;
  sys::crash_point("before-retire");
  retiring_ = true;
  retire_sent_ = executor().now();
  std::weak_ptr<ExchangeActor> weak = self();
  link_.retire(grant_->epoch, exchanges,
               [weak, attachment = attachment_, exchanges](Result<std::vector<bool>> accepted) {
                 if (auto actor = weak.lock())
                   actor::tell(actor, Retired{attachment, exchanges, std::move(accepted)});
               });
  publish();
}

// What the policy wants and the budget allows; it is in flight from here on.
std::vector<SlotExchange> ExchangeActor::choose(Propose what) {
  std::vector<SlotExchange> chosen;
  const uint32_t in_flight_max = control_.in_flight_max();
  if (in_flight_.size() >= in_flight_max) return chosen;
  const uint32_t room = in_flight_max - static_cast<uint32_t>(in_flight_.size());
  const uint32_t allowed = what == Propose::kAll ? budget_.available(room) : 0;
  uint32_t exchanged = 0;
  uint64_t bytes = 0;
  for (const residency::Proposal& proposal : policy_->propose(slots_.slots(), room)) {
    const bool urgent =
        slots_.at(proposal.slot).state == SlotView::State::kFree || control_.pinned(proposal.incoming);
    if (!urgent && exchanged == allowed) continue;
    if (!urgent) {
      ++exchanged;
      bytes += options_.record_bytes.at(proposal.incoming.layer);
    }
    chosen.push_back({proposal.slot, proposal.incoming});
    slots_.set(proposal.slot, {SlotView::State::kBusy, proposal.incoming});
    in_flight_[proposal.slot].incoming = proposal.incoming;
  }
  budget_.spend(exchanged, bytes);
  return chosen;
}

// --- the steps of an exchange

void ExchangeActor::on(Retired message) {
  if (!is_current(message.attachment)) return;
  sys::crash_point("retired");
  retiring_ = false;
  probe_.waited(seconds_since(retire_sent_));
  if (!message.accepted) {
    bool busy = message.accepted.error().code() == Code::kResourceExhausted;
    if (!busy) return give_up_attachment(message.accepted.error());
    for (const SlotExchange& exchange : message.exchanges) drop(exchange.slot, DropReason::kBusy);
    actor::tell_after(self(), kTryAgainAfter, TryAgain{message.attachment});
    answer_stop();
    return publish();
  }
  if (message.accepted->size() != message.exchanges.size()) {
    return give_up_attachment(fail(Code::kInternal, "{} answers to {} exchanges", message.accepted->size(),
                                   message.exchanges.size()));
  }
  for (std::size_t index = 0; index < message.exchanges.size(); ++index) {
    const SlotExchange& exchange = message.exchanges[index];
    if ((*message.accepted)[index]) {
      begin_copy(exchange);
    } else {
      drop(exchange.slot, DropReason::kRefused);
    }
  }
  settle();
  if (put_off_) propose(*std::exchange(put_off_, std::nullopt));
  answer_stop();
  publish();
}

void ExchangeActor::begin_copy(const SlotExchange& exchange) {
  InFlight& flight = in_flight_.at(exchange.slot);
  if (flight.called_off->load(std::memory_order_relaxed)) {
    flight.step = Step::kGivenUp;
    return;
  }
  flight.step = Step::kCopying;
  ++copies_running_;
  copier_.copy({.grant = grant_,
                .exchange = exchange,
                .called_off = flight.called_off,
                .done = [weak = std::weak_ptr(self()), attachment = attachment_,
                         slot = exchange.slot](CopyResult result) {
                  if (auto actor = weak.lock()) actor::tell(actor, Copied{attachment, slot, result});
                }});
}

void ExchangeActor::on(Copied message) {
  --copies_running_;
  if (!is_current(message.attachment)) return;
  sys::crash_point("copied");
  InFlight& flight = in_flight_.at(message.slot);
  flight.copied = message.result;
  // One that was called off too late is there and could land, but somebody else is to have its slot.
  const bool wanted = message.result.bytes > 0 && !flight.called_off->load(std::memory_order_relaxed);
  flight.step = wanted ? Step::kCopied : Step::kGivenUp;
  settle();
}

// Sends what is ready to be sent.
void ExchangeActor::settle() {
  if (!landing_) land(advance(Step::kCopied, Step::kLanding));
  if (!abandoning_) abandon(advance(Step::kGivenUp, Step::kAbandoning));
}

// The exchanges that were at `from`, and are at `to` now.
std::vector<uint32_t> ExchangeActor::advance(Step from, Step to) {
  std::vector<uint32_t> moved;
  for (auto& [slot, flight] : in_flight_) {
    if (flight.step != from) continue;
    flight.step = to;
    moved.push_back(slot);
  }
  return moved;
}

void ExchangeActor::land(const std::vector<uint32_t>& slots) {
  if (slots.empty()) return;
  landing_ = true;
  land_sent_ = executor().now();
  std::vector<CopiedSlot> copied;
  for (const uint32_t slot : slots) copied.push_back({slot, in_flight_.at(slot).copied.checksum});
  std::weak_ptr<ExchangeActor> weak = self();
  link_.land(grant_->epoch, std::move(copied), [weak, attachment = attachment_, slots](Status status) {
    if (auto actor = weak.lock()) actor::tell(actor, Landed{attachment, slots, std::move(status)});
  });
  sys::crash_point("land-sent");
}

void ExchangeActor::on(Landed message) {
  if (!is_current(message.attachment)) return;
  sys::crash_point("landed");
  landing_ = false;
  probe_.waited(seconds_since(land_sent_));
  if (message.status.code() == Code::kResourceExhausted) {  // a full inbox: nothing has happened
    for (const uint32_t slot : message.slots) in_flight_.at(slot).step = Step::kCopied;
    return actor::tell_after(self(), kTryAgainAfter, TryAgain{message.attachment});
  }
  if (!message.status.ok()) return give_up_attachment(message.status);
  for (uint32_t slot : message.slots) {
    const InFlight flight = in_flight_.extract(slot).mapped();
    slots_.set(slot, {SlotView::State::kResident, flight.incoming});
    probe_.landed(flight.incoming.layer, flight.copied.bytes);
    ++exchanges_total_;
    ++layer_exchanges_[flight.incoming.layer];
  }
  settle();
  // Filling goes on at the speed of the copies; exchanges wait for the next window.
  propose(Propose::kUrgent);
  answer_stop();
  publish();
}

void ExchangeActor::abandon(const std::vector<uint32_t>& slots) {
  if (slots.empty()) return;
  abandoning_ = true;
  std::weak_ptr<ExchangeActor> weak = self();
  link_.abandon(grant_->epoch, slots, [weak, attachment = attachment_, slots](Status status) {
    if (auto actor = weak.lock()) actor::tell(actor, Abandoned{attachment, slots, std::move(status)});
  });
}

void ExchangeActor::on(Abandoned message) {
  if (!is_current(message.attachment)) return;
  abandoning_ = false;
  if (message.status.code() == Code::kResourceExhausted) {
    for (const uint32_t slot : message.slots) in_flight_.at(slot).step = Step::kGivenUp;
    return actor::tell_after(self(), kTryAgainAfter, TryAgain{message.attachment});
  }
  if (!message.status.ok()) return give_up_attachment(message.status);
  for (const uint32_t slot : message.slots) drop(slot, DropReason::kAbandoned);
  settle();
  propose(Propose::kUrgent);
  answer_stop();
  publish();
}

void ExchangeActor::on(TryAgain message) {
  if (!is_current(message.attachment)) return;
  settle();
  propose(Propose::kUrgent);
}

void ExchangeActor::call_off() {
  for (auto& [slot, flight] : in_flight_) {
    if (flight.step == Step::kRetiring || flight.step == Step::kCopying)
      flight.called_off->store(true, std::memory_order_relaxed);
  }
}

void ExchangeActor::drop(uint32_t slot, DropReason reason) {
  in_flight_.erase(slot);
  slots_.set(slot, view_of(slot));
  probe_.dropped(reason, 1);
}

SlotView ExchangeActor::view_of(uint32_t slot) const {
  shm::SlotEntry entry = grant_->table.slot(slot);
  residency::ExpertKey key{entry.layer, entry.expert};
  switch (entry.state) {
    case shm::SlotState::kEmpty:
      return {};
    case shm::SlotState::kResident:
      return {SlotView::State::kResident, key};
    case shm::SlotState::kReserved:
      break;
  }
  return {SlotView::State::kBusy, key};
}

void ExchangeActor::publish() {
  status_.attached = grant_ != nullptr;
  status_.slots = static_cast<uint32_t>(slots_.slots().size());
  status_.slots_used = slots_.used();
  status_.in_flight = static_cast<uint32_t>(in_flight_.size());
  status_.exchanges_total = exchanges_total_;
  probe_.attached(grant_ != nullptr);
  probe_.in_flight(in_flight_.size());
  probe_.slots(policy_ == nullptr ? std::span<const uint32_t>() : policy_->quotas(), slots_.resident());
}

}  // namespace strata::cache_manager
