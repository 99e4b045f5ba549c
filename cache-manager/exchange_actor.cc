#include "cache-manager/exchange_actor.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/obs/log.h"

namespace strata::cache_manager {

using residency::SlotView;

namespace {

constexpr std::chrono::milliseconds kLandAgainAfter{10};

}  // namespace

ExchangeActor::ExchangeActor(std::shared_ptr<actor::Executor> executor, ExchangeOptions options,
                             LearnedProfile learned, EngineLink& link, ExpertCopier& copier,
                             CacheProbe& probe)
    : Actor(std::move(executor)),
      options_(std::move(options)),
      learned_(std::move(learned)),
      link_(link),
      copier_(copier),
      probe_(probe) {}

void ExchangeActor::on(Start) {
  on(Attach{});
  actor::tell_after(self(), options_.interval, Look{});
  actor::tell_after(self(), options_.save_every, SaveSometimes{});
}

// --- the attachment

void ExchangeActor::on(Attach) {
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
  if (message.attachment != attachment_) return;
  const Grant& grant = *message.grant;
  const shm::UsageHeader& shape = grant.usage.header();
  auto policy = options_.make_policy(
      options_.policy, {.shape = {.layers = shape.layers, .experts = shape.experts},
                        .slots = grant.slot_count,
                        .decay_tokens = options_.decay_tokens,
                        .profile = options_.fill_profile.empty() ? learned_.shares() : options_.fill_profile,
                        .experts_of_layer = options_.experts_per_layer});
  if (!policy) return give_up_attachment(policy.error());
  if (shape.layers != learned_.profile().layers || shape.experts != learned_.profile().experts) {
    return give_up_attachment(fail(
        Code::kFailedPrecondition, "the usage board counts {} layers of {} experts, the model has {} of {}",
        shape.layers, shape.experts, learned_.profile().layers, learned_.profile().experts));
  }
  policy_ = std::move(*policy);
  grant_ = std::move(message.grant);
  usage_.begin(grant_->usage);
  slots_.assign(grant_->slot_count, SlotView{});
  read_table();
  last_end_.clear();
  obs::info("exchange", "attached: {} slots, {} in use, policy {}", grant_->slot_count,
            status_.slots_used.load(), policy_->name());
  propose(Propose::kFillsOnly);
  publish();
}

void ExchangeActor::on(Ended message) {
  if (message.attachment != attachment_) return;
  if (std::exchange(last_end_, message.why.message()) != message.why.message()) {
    obs::warn("exchange", "not attached to the gpu-worker ({}); trying again", message.why.message());
  }
  if (!in_flight_.empty()) probe_.dropped(DropReason::kDetached, in_flight_.size());
  grant_ = nullptr;
  policy_ = nullptr;
  slots_.clear();
  in_flight_.clear();
  copied_.clear();
  retiring_ = landing_ = false;
  publish();
  actor::tell_after(self(), options_.attach_retry, Attach{});
}

// What the two sides believe may differ from here on. A new attachment puts that right: the gpu-worker then
// empties what was reserved.
void ExchangeActor::give_up_attachment(const Status& why) {
  obs::warn("exchange", "giving up the attachment: {}", why.message());
  link_.detach();
}

// --- looking at the usage

void ExchangeActor::on(Look) {
  if (grant_ != nullptr) {
    UsageReader::Delta delta = usage_.take(grant_->usage);
    if (delta.decode_tokens > 0) {
      policy_->observe({.decode_uses = delta.decode_uses,
                        .decode_tokens = delta.decode_tokens,
                        .prefill_uses = {},
                        .prefill_tokens = 0});
      learned_.add(delta.decode_uses, delta.decode_tokens);
    }
    // Nothing is exchanged for nobody: without new tokens there is no new reason.
    propose(delta.decode_tokens > 0 ? Propose::kAll : Propose::kFillsOnly);
  }
  actor::tell_after(self(), options_.interval, Look{});
}

void ExchangeActor::propose(Propose what) {
  if (retiring_ || in_flight_.size() >= options_.in_flight_max) return;
  auto budget = options_.in_flight_max - static_cast<uint32_t>(in_flight_.size());
  std::vector<SlotExchange> exchanges;
  for (const residency::Proposal& proposal : policy_->propose(slots_, budget)) {
    bool fills = slots_.at(proposal.slot).state == SlotView::State::kFree;
    // Layers may have fewer experts than the widest one.
    bool exists = proposal.incoming.expert < options_.experts_per_layer.at(proposal.incoming.layer);
    if (!exists || (what == Propose::kFillsOnly && !fills)) continue;
    exchanges.push_back({proposal.slot, proposal.incoming});
    slots_[proposal.slot] = {SlotView::State::kBusy, proposal.incoming};
    in_flight_[proposal.slot] = {proposal.incoming, 0};
  }
  if (exchanges.empty()) return;
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

// --- the steps of an exchange

void ExchangeActor::on(Retired message) {
  if (!is_current(message.attachment)) return;
  retiring_ = false;
  probe_.waited(seconds_since(retire_sent_));
  if (!message.accepted) {
    bool busy = message.accepted.error().code() == Code::kResourceExhausted;
    if (!busy) return give_up_attachment(message.accepted.error());
    for (const SlotExchange& exchange : message.exchanges) drop(exchange.slot, DropReason::kBusy);
    return publish();
  }
  if (message.accepted->size() != message.exchanges.size()) {
    return give_up_attachment(fail(Code::kInternal, "{} answers to {} exchanges", message.accepted->size(),
                                   message.exchanges.size()));
  }
  std::weak_ptr<ExchangeActor> weak = self();
  for (std::size_t index = 0; index < message.exchanges.size(); ++index) {
    const SlotExchange& exchange = message.exchanges[index];
    if (!(*message.accepted)[index]) {
      drop(exchange.slot, DropReason::kRefused);
      continue;
    }
    ++copies_running_;
    copier_.copy(grant_, exchange,
                 [weak, attachment = message.attachment, slot = exchange.slot](uint64_t bytes) {
                   if (auto actor = weak.lock()) actor::tell(actor, Copied{attachment, slot, bytes});
                 });
  }
  publish();
}

void ExchangeActor::on(Copied message) {
  --copies_running_;
  if (!is_current(message.attachment)) return;
  in_flight_.at(message.slot).bytes = message.bytes;
  copied_.push_back(message.slot);
  land_copied();
}

void ExchangeActor::land_copied() {
  if (landing_ || copied_.empty()) return;
  landing_ = true;
  land_sent_ = executor().now();
  std::vector<uint32_t> slots = std::exchange(copied_, {});
  std::weak_ptr<ExchangeActor> weak = self();
  link_.land(grant_->epoch, slots, [weak, attachment = attachment_, slots](Status status) {
    if (auto actor = weak.lock()) actor::tell(actor, Landed{attachment, slots, std::move(status)});
  });
}

void ExchangeActor::on(Landed message) {
  if (!is_current(message.attachment)) return;
  landing_ = false;
  probe_.waited(seconds_since(land_sent_));
  if (message.status.code() == Code::kResourceExhausted) {  // a full inbox: nothing has happened
    copied_.insert(copied_.end(), message.slots.begin(), message.slots.end());
    return actor::tell_after(self(), kLandAgainAfter, LandAgain{message.attachment});
  }
  if (!message.status.ok()) return give_up_attachment(message.status);
  for (uint32_t slot : message.slots) {
    auto exchange = in_flight_.extract(slot);
    slots_[slot] = {SlotView::State::kResident, exchange.mapped().incoming};
    probe_.landed(1, exchange.mapped().bytes);
    ++exchanges_total_;
  }
  land_copied();
  // Filling goes on at the speed of the copies; exchanges wait for the next look.
  propose(Propose::kFillsOnly);
  publish();
}

void ExchangeActor::on(LandAgain message) {
  if (is_current(message.attachment)) land_copied();
}

void ExchangeActor::drop(uint32_t slot, DropReason reason) {
  in_flight_.erase(slot);
  slots_[slot] = view_of(slot);
  probe_.dropped(reason, 1);
}

// --- the picture of the table

void ExchangeActor::read_table() {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) slots_[slot] = view_of(slot);
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
  auto used = std::count_if(slots_.begin(), slots_.end(),
                            [](const SlotView& slot) { return slot.state == SlotView::State::kResident; });
  status_.attached = grant_ != nullptr;
  status_.slots = static_cast<uint32_t>(slots_.size());
  status_.slots_used = static_cast<uint32_t>(used);
  status_.in_flight = static_cast<uint32_t>(in_flight_.size());
  status_.exchanges_total = exchanges_total_;
  probe_.attached(grant_ != nullptr);
  probe_.in_flight(in_flight_.size());
}

// --- questions

void ExchangeActor::on(DescribeResidency message) {
  ResidencySummary summary{.attached = grant_ != nullptr,
                           .policy = options_.policy,
                           .quotas = {},
                           .experts = std::vector<std::vector<uint32_t>>(options_.experts_per_layer.size()),
                           .slots = status_.slots,
                           .slots_used = status_.slots_used,
                           .in_flight = status_.in_flight,
                           .exchanges_total = exchanges_total_};
  if (policy_ != nullptr) summary.quotas.assign(policy_->quotas().begin(), policy_->quotas().end());
  for (const SlotView& slot : slots_) {
    if (slot.state == SlotView::State::kResident)
      summary.experts.at(slot.key.layer).push_back(slot.key.expert);
  }
  for (auto& experts : summary.experts) std::sort(experts.begin(), experts.end());
  message.reply(std::move(summary));
}

void ExchangeActor::on(DescribeUsage message) {
  if (grant_ == nullptr) return message.reply(fail(Code::kUnavailable, "no gpu-worker is attached"));
  const shm::UsageBoard& board = grant_->usage;
  UsageSummary summary{.model_fingerprint = learned_.profile().model_fingerprint,
                       .layers = board.header().layers,
                       .experts = board.header().experts,
                       .decode_counts = {},
                       .prefill_counts = {}};
  for (uint32_t layer = 0; layer < summary.layers; ++layer) {
    for (uint32_t expert = 0; expert < summary.experts; ++expert) {
      summary.decode_counts.push_back(board.decode(layer, expert).load(std::memory_order_relaxed));
      summary.prefill_counts.push_back(board.prefill(layer, expert).load(std::memory_order_relaxed));
    }
  }
  message.reply(std::move(summary));
}

// --- the learned profile

void ExchangeActor::on(SaveProfile message) {
  std::string path = message.path.empty() ? options_.learned_path : message.path;
  if (!message.only_if_changed || learned_.changed()) {
    if (Status saved = learned_.save(path); !saved.ok())
      return message.reply(fail(saved.code(), "{}", saved.message()));
  }
  message.reply(path);
}

void ExchangeActor::on(SaveSometimes) {
  on(SaveProfile{.path = {}, .only_if_changed = true, .reply = [](const Result<std::string>& saved) {
                   if (!saved)
                     obs::warn("profile", "the learned profile was not saved: {}", saved.error().message());
                 }});
  actor::tell_after(self(), options_.save_every, SaveSometimes{});
}

}  // namespace strata::cache_manager
