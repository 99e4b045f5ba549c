#include "gpu-worker/parking/parking.h"

#include <algorithm>
#include <utility>

#include "services/obs/log.h"

namespace strata::gpu_worker {

namespace {

constexpr std::chrono::seconds kAfterFailure{1};

TransferPlace place_of(const KeptSequences::Lock& lock) { return {lock.sequence, lock.slot, lock.stop}; }

// Trying again would end the same way.
bool is_final(const Status& status) {
  return status.ok() || status.code() == Code::kAlreadyExists || status.code() == Code::kOutOfRange ||
         status.code() == Code::kResourceExhausted || status.code() == Code::kInvalidArgument ||
         status.code() == Code::kFailedPrecondition;
}

}  // namespace

Parking::Parking(ParkingOptions options)
    : options_(std::move(options)),
      transfers_({.device = options_.device,
                  .store = options_.store,
                  .on_done = options_.wake,
                  .on_restored = options_.on_restored}) {
  options_.store->on_change(options_.wake);
}

Parking::~Parking() {
  options_.store->on_change(nullptr);
  transfers_.stop();
  if (parking_) options_.sequences->unlock(parking_->what.lock);
  for (const auto& [number, restoring] : restoring_) {
    if (!restoring.ended) options_.sequences->unlock(restoring.lock);
  }
}

void Parking::take_in(Clock::time_point now) {
  follow_store();
  for (TransferDone& done : transfers_.take_done()) {
    if (parking_ && parking_->number == done.number) {
      park_done(done, now);
      continue;
    }
    const auto found = restoring_.find(done.number);
    Restoring& restoring = found->second;
    if (done.pages != nullptr) {
      restore_begun(restoring, done);
      continue;
    }
    restore_ended(restoring, std::move(done.status));
    if (!restoring.wanted) restoring_.erase(found);
  }
}

void Parking::follow_store() {
  const uint64_t attachment = options_.store->attachment();
  if (std::exchange(attachment_, attachment) == attachment) return;
  options_.sequences->set_parking(attachment != 0);
  park_again_ = {};
}

void Parking::park_next(Clock::time_point now) {
  looked_ = now;
  if (parking_ || attachment_ == 0 || now < park_again_) return;
  auto next = options_.sequences->next_to_park(now, options_.park_after);
  if (!next) return;
  next->what.cost_seconds = options_.seconds_per_token() * static_cast<double>(next->what.tokens.size());
  const uint64_t number = transfers_.park(place_of(next->lock), std::move(next->what));
  parking_ = Parked{.number = number, .what = std::move(*next)};
}

void Parking::park_done(const TransferDone& done, Clock::time_point now) {
  const KeptSequences::ToPark what = std::move(std::exchange(parking_, std::nullopt)->what);
  options_.sequences->unlock(what.lock);
  if (is_final(done.status)) {
    options_.sequences->set_parked(what.state);
  } else if (done.status.code() != Code::kCancelled) {
    park_again_ = now + kAfterFailure;
  }
  if (!done.status.ok() && done.status.code() != Code::kAlreadyExists &&
      done.status.code() != Code::kCancelled) {
    obs::warn("parking", "a conversation was not parked: {}", done.status.message());
  }
}

std::optional<Parking::Clock::time_point> Parking::wakes_at() const {
  if (parking_ || attachment_ == 0) return std::nullopt;
  const auto next = options_.sequences->next_due(options_.park_after);
  if (!next) return std::nullopt;
  // What was due and has not begun waits for a transfer, which wakes the loop when it is done.
  const Clock::time_point due = std::max(*next, park_again_);
  return due > looked_ ? std::optional(due) : std::nullopt;
}

Result<uint64_t> Parking::restore(const Wanted& wanted, std::span<const int32_t> tokens,
                                  const snapshot::Hash128& name_space, uint32_t shared_tokens,
                                  KeptSequences::Patience patience) {
  if (options_.store->attachment() == 0)
    return fail(Code::kFailedPrecondition, "no store of parked conversations is attached");
  TRY(auto lock, options_.sequences->place(tokens, name_space, shared_tokens, patience));
  const auto head = tokens.first(wanted.tokens);
  Restoring restoring{.lock = lock, .tokens = {head.begin(), head.end()}};
  const uint64_t number = transfers_.restore(place_of(lock), wanted.id, restoring.tokens);
  restoring_.emplace(number, std::move(restoring));
  return number;
}

void Parking::restore_begun(Restoring& restoring, TransferDone& done) {
  if (!restoring.wanted) return;
  restoring.begun = true;
  options_.sequences->restored(restoring.lock, restoring.tokens, std::move(done.generated));
  restoring.result = Restored{{}, restoring.lock.sequence, done.from_disk, std::move(done.pages)};
}

// Of one that had begun, whoever has it hears from its gate how it went.
void Parking::restore_ended(Restoring& restoring, Status status) {
  if (restoring.wanted && !restoring.begun) {
    options_.sequences->close(restoring.lock.sequence);
    restoring.result = Restored{.status = std::move(status), .sequence = restoring.lock.sequence};
  }
  options_.sequences->unlock(restoring.lock);
  restoring.ended = true;
}

std::optional<Parking::Restored> Parking::take_restored(uint64_t number) {
  const auto found = restoring_.find(number);
  Restoring& restoring = found->second;
  if (!restoring.result) return std::nullopt;
  Restored result = std::move(*restoring.result);
  restoring.wanted = false;
  if (restoring.ended) restoring_.erase(found);
  return result;
}

void Parking::give_up(uint64_t number) {
  const auto found = restoring_.find(number);
  Restoring& restoring = found->second;
  restoring.wanted = false;
  if (restoring.begun || !restoring.ended) options_.sequences->close(restoring.lock.sequence);
  if (!restoring.ended) {
    if (!transfers_.give_up(number, place_of(restoring.lock))) return;
    options_.sequences->unlock(restoring.lock);
  }
  restoring_.erase(found);
}

}  // namespace strata::gpu_worker
