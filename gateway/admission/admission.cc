#include "gateway/admission/admission.h"

#include <algorithm>
#include <utility>

namespace strata::gateway {

namespace {

// What a client is told to wait before it tries again. A running answer frees its sequence in about this
// time.
constexpr uint32_t kRetryAfterSeconds = 2;

}  // namespace

Admission::Admission(std::shared_ptr<actor::Executor> executor, AdmissionOptions options,
                     std::function<void(const AdmissionView&)> on_change, std::function<void()> on_loss)
    : Actor(std::move(executor)),
      options_(options),
      on_change_(std::move(on_change)),
      on_loss_(std::move(on_loss)) {}

void Admission::on(Submit submit) {
  if (draining_) return submit.reply(Refused{shutting_down()});
  if (submit.no_wait && !ready()) {
    return submit.reply(Refused{ever_ready_ ? engine_away() : model_loading(engine_.progress)});
  }
  if (!submit.further && full())
    return submit.reply(Refused{overloaded(waiting_requests(), kRetryAfterSeconds)});
  if (!submit.further && options_.requests_per_key != 0 &&
      requests_of(submit.key) >= options_.requests_per_key)
    return submit.reply(Refused{too_many_of_key(options_.requests_per_key, kRetryAfterSeconds)});
  waiting_.push_back({.place = {.ticket = submit.ticket, .key = submit.key, .priority = submit.priority},
                      .reply = submit.reply,
                      .further = submit.further});
  grant_what_fits();
  on(AskPosition{.ticket = submit.ticket});
  changed();
}

void Admission::on(Leave leave) {
  running_.erase(leave.ticket);
  if (auto found = find_waiting(leave.ticket); found != waiting_.end()) waiting_.erase(found);
  grant_what_fits();
  changed();
}

void Admission::on(AskPosition ask) {
  auto found = find_waiting(ask.ticket);
  if (found == waiting_.end()) return;
  const std::vector<TicketId> tickets = order();
  const auto place = std::ranges::find(tickets, ask.ticket) - tickets.begin();
  found->reply(Queued{static_cast<uint32_t>(place) + 1});
}

void Admission::on(EngineLost lost) {
  auto found = running_.find(lost.ticket);
  if (found == running_.end()) return;
  found->second.waits_for_engine = true;
  // Whatever was seen of the engine is older than this.
  engine_ = {};
  on_loss_();
  changed();
}

void Admission::on(EngineState state) {
  engine_ = std::move(state);
  if (ready()) {
    ever_ready_ = true;
    options_.sequences = std::max(engine_.info.sequences_max, 1u);
    for (auto& [ticket, running] : running_) {
      if (!std::exchange(running.waits_for_engine, false)) continue;
      running.reply(EngineBack{engine_.info});
    }
    grant_what_fits();
  }
  changed();
}

void Admission::on(Drain) {
  draining_ = true;
  for (Waiting& waiting : std::exchange(waiting_, {})) waiting.reply(Refused{shutting_down()});
  changed();
}

uint32_t Admission::free_sequences() const {
  const auto running = static_cast<uint32_t>(running_.size());
  return running < options_.sequences ? options_.sequences - running : 0;
}

// Before the engine is ready, those that will run at once wait beside those that wait for a sequence.
bool Admission::full() const { return waiting_requests() >= options_.queue_limit + free_sequences(); }

uint32_t Admission::waiting_requests() const {
  return static_cast<uint32_t>(std::ranges::count(waiting_, false, &Waiting::further));
}

void Admission::grant_what_fits() {
  while (ready() && !waiting_.empty() && free_sequences() > 0) {
    auto found = find_waiting(in_line().pop(history_));
    Waiting next = std::move(*found);
    waiting_.erase(found);
    running_[next.place.ticket] = {.key = next.place.key, .reply = next.reply, .further = next.further};
    next.reply(Granted{engine_.info});
  }
}

uint32_t Admission::requests_of(const NamespaceId& key) const {
  const auto waiting = std::ranges::count_if(
      waiting_, [&](const Waiting& one) { return !one.further && one.place.key == key; });
  const auto running = std::ranges::count_if(
      running_, [&](const auto& entry) { return !entry.second.further && entry.second.key == key; });
  return static_cast<uint32_t>(waiting + running);
}

// Those that wait, the next one first. What this says stays true until somebody
// comes or leaves.
std::vector<TicketId> Admission::order() const {
  Line line = in_line();
  TurnHistory history = history_;
  std::vector<TicketId> tickets;
  while (!line.empty()) tickets.push_back(line.pop(history));
  return tickets;
}

Line Admission::in_line() const {
  std::vector<InLine> all;
  for (const Waiting& waiting : waiting_) all.push_back(waiting.place);
  return Line(all);
}

std::vector<Admission::Waiting>::iterator Admission::find_waiting(TicketId ticket) {
  return std::ranges::find(waiting_, ticket, [](const Waiting& waiting) { return waiting.place.ticket; });
}

void Admission::changed() {
  on_change_(
      {.running = static_cast<uint32_t>(running_.size()), .waiting = waiting_requests(), .full = full()});
}

}  // namespace strata::gateway
