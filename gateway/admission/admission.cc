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
  if (full()) {
    return submit.reply(Refused{overloaded(static_cast<uint32_t>(waiting_.size()), kRetryAfterSeconds)});
  }
  waiting_.push_back({.ticket = submit.ticket, .reply = submit.reply});
  grant_what_fits();
  if (!running_.contains(submit.ticket)) submit.reply(Queued{static_cast<uint32_t>(waiting_.size())});
  changed();
}

void Admission::on(Leave leave) {
  running_.erase(leave.ticket);
  std::erase_if(waiting_, [&leave](const Waiting& waiting) { return waiting.ticket == leave.ticket; });
  grant_what_fits();
  changed();
}

void Admission::on(AskPosition ask) {
  auto found = std::ranges::find(waiting_, ask.ticket, &Waiting::ticket);
  if (found != waiting_.end()) found->reply(Queued{static_cast<uint32_t>(found - waiting_.begin()) + 1});
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
bool Admission::full() const { return waiting_.size() >= options_.queue_limit + free_sequences(); }

void Admission::grant_what_fits() {
  while (ready() && !waiting_.empty() && free_sequences() > 0) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    running_[next.ticket] = {.reply = next.reply};
    next.reply(Granted{engine_.info});
  }
}

void Admission::changed() {
  on_change_({.running = static_cast<uint32_t>(running_.size()),
              .waiting = static_cast<uint32_t>(waiting_.size()),
              .full = full()});
}

}  // namespace strata::gateway
