// KeptSequences, the part that parking and its listeners use: which state is copied next, what is locked
// meanwhile, and what others are told.

#include <algorithm>
#include <utility>

#include "gpu-worker/kept_sequences.h"
#include "services/base/check.h"

namespace strata::gpu_worker {

using snapshot::SnapshotKind;

namespace {

// So many requests after a conversation was pushed out by another, the next one is expected to be, too.
constexpr uint64_t kCrowdedFor = 4;
// Tokens from the checkpoint before, from which on one that may be lost is worth the copying: below, parking
// would cost every step of an agent more than reading it again costs once.
constexpr uint32_t kEndangeredTokensMin = 256;

}  // namespace

// --- locks

bool KeptSequences::locked(SequenceId id) const {
  return std::ranges::find(locks_, id, &Lock::sequence) != locks_.end();
}

void KeptSequences::interrupt(SequenceId id) {
  for (const Lock& lock : locks_) {
    if (lock.sequence == id) lock.stop->store(true);
  }
}

KeptSequences::Lock KeptSequences::lock(SequenceId id, uint32_t slot) {
  return locks_.emplace_back(Lock{id, slot, std::make_shared<std::atomic<bool>>(false)});
}

void KeptSequences::unlock(const Lock& lock) {
  const auto erased = std::erase_if(locks_, [&](const Lock& each) { return each.stop == lock.stop; });
  CHECK(erased == 1);
  if (record_of(lock.sequence).closing && !locked(lock.sequence)) remove(lock.sequence);
}

// --- parking

void KeptSequences::set_parking(bool possible) {
  parking_ = possible;
  for (Record& record : records_) record.parked = false;
  for (Checkpoint& checkpoint : checkpoints_) checkpoint.parked = false;
}

// There are more conversations than places. Whoever comes next would wait for what is not parked until then.
bool KeptSequences::crowded() const {
  return leaving_ || (pushed_out_ && served_ - *pushed_out_ <= kCrowdedFor);
}

bool KeptSequences::can_be_parked(const Record& record) const {
  return parking_ && !record.closing && !record.name_space.is_zero();
}

KeptSequences::Checkpoint* KeptSequences::unparked_checkpoint(const Record& record) {
  const auto found = std::ranges::find_if(
      checkpoints_, [&](const Checkpoint& each) { return each.owner == record.id && !each.parked; });
  return found == checkpoints_.end() ? nullptr : &*found;
}

// Nothing of the next turn's beginning, and of those before, is lost with it.
bool KeptSequences::settled(const Record& record) const {
  if (record.running || !can_be_parked(record)) return true;
  return record.parked && std::ranges::none_of(checkpoints_, [&](const Checkpoint& each) {
           return each.owner == record.id && !each.parked;
         });
}

// Those that somebody waits for come first, then those that have been left alone longest.
const KeptSequences::Record* KeptSequences::next_unsettled() const {
  const Record* next = nullptr;
  const auto order = [](const Record& each) { return std::pair(!each.in_the_way, each.idle_since); };
  for (const Record& record : records_) {
    if (settled(record)) continue;
    if (next == nullptr || order(record) < order(*next)) next = &record;
  }
  return next;
}

std::optional<KeptSequences::Clock::time_point> KeptSequences::next_due(Clock::duration idle) const {
  const Record* next = next_unsettled();
  if (next == nullptr) return std::nullopt;
  if (next->in_the_way) return Clock::time_point();
  return next->idle_since + (crowded() ? Clock::duration() : idle);
}

std::optional<KeptSequences::ToPark> KeptSequences::next_to_park(Clock::time_point now,
                                                                 Clock::duration idle) {
  const auto due = next_due(idle);
  if (!due || *due > now) {
    const Checkpoint* endangered = endangered_checkpoint();
    if (endangered == nullptr) return std::nullopt;
    return park_checkpoint(record_of(endangered->owner), *endangered);
  }
  Record& record = record_of(next_unsettled()->id);
  Checkpoint* unparked = unparked_checkpoint(record);
  // The end is worth most. But where it would cost a checkpoint its slot, that one is copied first.
  if (!record.parked && (unparked == nullptr || unused_slot())) {
    if (const auto slot = free_slot()) return park_end(record, *slot);
  }
  if (unparked == nullptr) return std::nullopt;  // all slots are being copied
  return park_checkpoint(record, *unparked);
}

// The slots of checkpoints go to others while their sequence still runs, or has just ended.
const KeptSequences::Checkpoint* KeptSequences::endangered_checkpoint() const {
  const bool all_slots_taken = !unused_slot();
  if (!parking_ || (!crowded() && !all_slots_taken)) return nullptr;
  const Checkpoint* next = nullptr;
  for (const Checkpoint& each : checkpoints_) {
    const Record& record = *std::ranges::find(records_, each.owner, &Record::id);
    // What is known of an answer's tokens before its end is not all that a parked state has to say.
    if (each.parked || each.in_answer || slot_locked(each.slot) || !can_be_parked(record)) continue;
    if (!crowded() && tokens_behind_previous(each) < kEndangeredTokensMin) continue;
    if (next == nullptr || value(each) < value(*next)) next = &each;  // it would go first
  }
  return next;
}

KeptSequences::ToPark KeptSequences::park_end(Record& record, uint32_t slot) {
  device_.capture(record.id, slot);
  return {.state = record.state,
          .lock = lock(record.id, slot),
          .what = {.name_space = record.name_space,
                   .tokens = record.tokens,
                   .generated = record.generated,
                   .kind = SnapshotKind::kEnd}};
}

KeptSequences::ToPark KeptSequences::park_checkpoint(const Record& record, const Checkpoint& checkpoint) {
  return {
      .state = checkpoint.state,
      .lock = lock(record.id, checkpoint.slot),
      .what = {.name_space = shared(record, checkpoint) ? snapshot::shared_name_space() : record.name_space,
               .tokens = first_tokens(record.tokens, checkpoint.tokens),
               .generated = first_ranges(record.generated, checkpoint.tokens),
               .kind = checkpoint.kind}};
}

void KeptSequences::set_parked(uint64_t state) {
  for (Record& record : records_) {
    if (record.state == state) record.parked = true;
  }
  for (Checkpoint& checkpoint : checkpoints_) {
    if (checkpoint.state == state) checkpoint.parked = true;
  }
}

// --- restoring

Result<KeptSequences::Lock> KeptSequences::place(std::span<const int32_t> tokens,
                                                 const snapshot::Hash128& name_space, uint32_t shared_tokens,
                                                 Patience patience) {
  if (locks_.size() >= device_.checkpoint_slots())
    return fail(Code::kUnavailable, "all slots for states are being copied");
  ++begun_;
  changed_ = true;
  // What the device knows of these tokens is the way out if the state cannot be restored.
  const Match match = longest(tokens.first(tokens.size() - 1), name_space);
  std::optional<SequenceId> spared;
  if (match.record != nullptr) spared = match.record->id;
  Result<SequenceId> id = open(spared, patience);
  if (!id && id.error().code() != Code::kUnavailable && spared) id = open(std::nullopt, patience);
  if (!id) return forward_failure(std::move(id));
  Record& record = record_of(*id);
  record.name_space = name_space;
  record.shared_tokens = shared_tokens;
  return lock(*id, *free_slot());
}

void KeptSequences::restored(const Lock& lock, std::span<const int32_t> tokens,
                             std::vector<snapshot::TokenRange> generated) {
  const auto count = static_cast<uint32_t>(tokens.size());
  device_.restore(lock.sequence, lock.slot, count);
  Record& record = record_of(lock.sequence);
  record.tokens.assign(tokens.begin(), tokens.end());
  record.generated = std::move(generated);
  record.reused = count;
  record.used = begun_;
  ++served_;
}

// --- telling

std::vector<StateChange> KeptSequences::take_changes() {
  std::vector<StateChange> changes;
  if (!std::exchange(changed_, false)) return changes;
  std::unordered_map<uint64_t, StateSource> now;
  const auto see = [&](uint64_t id, StateSource source, const Record& record, bool is_shared, auto describe) {
    now.emplace(id, source);
    const auto told = told_.find(id);
    if (told != told_.end() && told->second == source) return;
    StateChange& change = changes.emplace_back();
    change.id = id;
    change.source = source;
    change.name_space = record.name_space;
    change.shared = is_shared;
    change.what = StateChange::What::kSource;
    if (told != told_.end()) return;
    change.what = StateChange::What::kAdded;
    describe(change);
  };
  for (const Record& record : records_) {
    if (record.state == 0) continue;
    see(record.state, StateSource::kLive, record, false, [&](StateChange& change) {
      change.tokens = record.tokens;
      change.generated = record.generated;
    });
  }
  for (const Checkpoint& checkpoint : checkpoints_) {
    const Record& record = record_of(checkpoint.owner);
    see(checkpoint.state, record.running ? StateSource::kRunning : StateSource::kCheckpoint, record,
        shared(record, checkpoint), [&](StateChange& change) {
          change.kind = checkpoint.kind;
          change.tokens = first_tokens(record.tokens, checkpoint.tokens);
          change.generated = first_ranges(record.generated, checkpoint.tokens);
        });
  }
  for (const auto& [id, source] : told_) {
    if (now.contains(id)) continue;
    changes.push_back(
        {.what = StateChange::What::kRemoved, .id = id, .source = source, .taken = taken_.contains(id)});
  }
  told_ = std::move(now);
  taken_.clear();
  return changes;
}

}  // namespace strata::gpu_worker
