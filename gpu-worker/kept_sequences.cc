#include "gpu-worker/kept_sequences.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"

namespace strata::gpu_worker {

using snapshot::SnapshotKind;
using snapshot::TokenRange;

namespace {

uint32_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// What another copy of a parked state is worth beside one that would have to be read again.
constexpr double kParkedValue = 0.1;

}  // namespace

KeptSequences::KeptSequences(Device& device) : device_(device) {}

KeptSequences::~KeptSequences() {
  for (const Record& record : records_) device_.close_sequence(record.id);
}

KeptSequences::Record& KeptSequences::record_of(SequenceId id) {
  const auto record = std::ranges::find(records_, id, &Record::id);
  CHECK(record != records_.end(), "sequence {} generation {}", id.index, id.generation);
  return *record;
}

Result<KeptSequences::Begun> KeptSequences::begin(std::span<const int32_t> tokens,
                                                  const snapshot::Hash128& name_space, uint32_t shared_tokens,
                                                  Patience patience) {
  CHECK(!tokens.empty());
  ++begun_;
  changed_ = true;
  const Match match = longest(tokens.first(tokens.size() - 1), name_space);
  Begun begun;
  if (match.record != nullptr && !match.checkpoint) {
    match.record->running = true;
    taken_.insert(std::exchange(match.record->state, 0));
    begun = {match.record->id, match.tokens, ReuseSource::kLive};
  } else if (match.record != nullptr) {
    TRY(begun, go_on(match, tokens, patience));
  } else {
    TRY(begun.sequence, open(std::nullopt, patience));
  }
  Record& record = record_of(begun.sequence);
  record.name_space = name_space;
  record.shared_tokens = shared_tokens;
  record.used = begun_;
  record.reused = begun.reused;
  record.in_the_way = false;
  ++served_;
  return begun;
}

uint32_t KeptSequences::known(std::span<const int32_t> tokens, const snapshot::Hash128& name_space) {
  return longest(tokens.first(tokens.size() - 1), name_space).tokens;
}

// The record or checkpoint that holds most of the tokens. Records can only be taken as a whole, and only when
// nobody runs them.
KeptSequences::Match KeptSequences::longest(std::span<const int32_t> tokens,
                                            const snapshot::Hash128& name_space) {
  Match best;
  for (Record& record : records_) {
    if (record.closing) continue;
    uint32_t common = common_prefix(record.tokens, tokens);
    const bool own = record.name_space == name_space;
    if (own && !record.running && common == record.tokens.size() && common > 0 && common >= best.tokens)
      best = {&record, std::nullopt, common};
    if (!own) common = std::min(common, record.shared_tokens);
    for (const Checkpoint& checkpoint : checkpoints_) {
      if (checkpoint.owner == record.id && checkpoint.tokens <= common && checkpoint.tokens > best.tokens)
        best = {&record, checkpoint, checkpoint.tokens};
    }
  }
  return best;
}

// Goes on from a checkpoint: in a sequence of its own that gets the pages, or, where the owner's later tokens
// are not worth another place, in the owner itself.
Result<KeptSequences::Begun> KeptSequences::go_on(const Match& match, std::span<const int32_t> tokens,
                                                  Patience patience) {
  const Checkpoint checkpoint = *match.checkpoint;
  const bool owner_runs = match.record->running;
  const std::vector<TokenRange> generated = first_ranges(match.record->generated, checkpoint.tokens);
  SequenceId own = checkpoint.owner;
  if (owner_runs || checkpoint.kind == SnapshotKind::kRoot) {
    if (Result<SequenceId> opened = open(checkpoint.owner, patience)) {
      own = *opened;
    } else if (owner_runs || opened.error().code() == Code::kUnavailable) {
      return forward_failure(std::move(opened));
    } else if (patience == Patience::kUntilParked && !settled(*match.record)) {
      match.record->in_the_way = true;
      return fail(Code::kUnavailable, "the sequence that the state belongs to is not parked yet");
    }
  }
  if (own == checkpoint.owner) {
    if (locked(own)) {
      interrupt(own);
      return fail(Code::kUnavailable, "the sequence is being copied");
    }
    forget_beyond(own, checkpoint.tokens);
  } else {
    device_.copy_pages(checkpoint.owner, own, checkpoint.tokens);
  }
  // open() may have taken any other checkpoint, but none of the one that it spared.
  std::ranges::find(checkpoints_, checkpoint.slot, &Checkpoint::slot)->used = begun_;
  device_.restore(own, checkpoint.slot, checkpoint.tokens);
  Record& record = record_of(own);
  record.running = true;
  record.state = 0;
  record.tokens.assign(tokens.begin(), tokens.begin() + checkpoint.tokens);
  record.generated = generated;
  return Begun{own, checkpoint.tokens, ReuseSource::kCheckpoint};
}

// A free sequence, or that of a kept one other than `spared`: of those that are parked, else of all, the one
// that was used longest ago.
Result<SequenceId> KeptSequences::open(std::optional<SequenceId> spared, Patience patience) {
  Result<SequenceId> id = device_.open_sequence();
  if (!id) {
    Record* victim = nullptr;
    bool closing = false;
    for (Record& record : records_) {
      closing = closing || record.closing;
      if (record.running || record.closing || record.id == spared) continue;
      const auto order = [&](const Record& each) { return std::pair(!settled(each), each.used); };
      if (victim == nullptr || order(record) < order(*victim)) victim = &record;
    }
    if (closing) return fail(Code::kUnavailable, "a sequence is about to be free");
    if (victim == nullptr) return id;
    if (patience == Patience::kUntilParked && !settled(*victim)) {
      victim->in_the_way = true;
      return fail(Code::kUnavailable, "the sequence that has to go is not parked yet");
    }
    pushed_out_ = served_;
    close(victim->id);
    id = device_.open_sequence();
    // It is being copied: closed in a moment.
    if (!id) return fail(Code::kUnavailable, "a sequence is about to be free");
  }
  records_.push_back({.id = *id, .tokens = {}, .used = begun_});
  return id;
}

std::optional<uint32_t> KeptSequences::checkpoint(SequenceId id, std::span<const int32_t> tokens,
                                                  SnapshotKind kind) {
  Record& record = record_of(id);
  const auto count = static_cast<uint32_t>(tokens.size());
  CHECK(record.tokens.size() <= count, "a checkpoint behind {} tokens, {} are known", count,
        record.tokens.size());
  record.tokens.insert(record.tokens.end(),
                       tokens.begin() + static_cast<std::ptrdiff_t>(record.tokens.size()), tokens.end());
  for (Checkpoint& made : checkpoints_) {
    if (made.owner == id && made.tokens == count) {
      made.used = begun_;
      return std::nullopt;
    }
  }
  const std::optional<uint32_t> slot = free_slot();
  if (!slot) return std::nullopt;
  changed_ = true;
  checkpoints_.push_back(
      {.state = ++last_state_, .slot = *slot, .owner = id, .tokens = count, .kind = kind, .used = begun_});
  return slot;
}

void KeptSequences::checkpoint_answer(SequenceId id, std::span<const int32_t> tokens) {
  uint32_t latest = 0;
  for (const Checkpoint& each : checkpoints_) {
    if (each.owner == id && each.in_answer) latest = std::max(latest, each.tokens);
  }
  changed_ |= std::erase_if(checkpoints_, [&](const Checkpoint& each) {
                return each.owner == id && each.in_answer && each.tokens < latest && !slot_locked(each.slot);
              }) > 0;
  if (const auto slot = checkpoint(id, tokens, SnapshotKind::kInterval)) device_.capture(id, *slot);
  const auto made = std::ranges::find_if(
      checkpoints_, [&](const Checkpoint& each) { return each.owner == id && each.tokens == tokens.size(); });
  if (made != checkpoints_.end()) made->in_answer = true;
}

bool KeptSequences::slot_locked(uint32_t slot) const {
  return std::ranges::find(locks_, slot, &Lock::slot) != locks_.end();
}

std::optional<uint32_t> KeptSequences::unused_slot() const {
  for (uint32_t slot = 0; slot < device_.checkpoint_slots(); ++slot) {
    if (!slot_locked(slot) && std::ranges::find(checkpoints_, slot, &Checkpoint::slot) == checkpoints_.end())
      return slot;
  }
  return std::nullopt;
}

std::optional<uint32_t> KeptSequences::free_slot() {
  if (const auto slot = unused_slot()) return slot;
  auto least = checkpoints_.end();
  for (auto each = checkpoints_.begin(); each != checkpoints_.end(); ++each) {
    if (slot_locked(each->slot)) continue;
    if (least == checkpoints_.end() || value(*each) < value(*least)) least = each;
  }
  if (least == checkpoints_.end()) return std::nullopt;
  const uint32_t slot = least->slot;
  changed_ = true;
  checkpoints_.erase(least);
  return slot;
}

// That would have to be read again without it.
uint32_t KeptSequences::tokens_behind_previous(const Checkpoint& checkpoint) const {
  uint32_t before = 0;
  for (const Checkpoint& other : checkpoints_) {
    if (other.owner == checkpoint.owner && other.tokens < checkpoint.tokens)
      before = std::max(before, other.tokens);
  }
  return checkpoint.tokens - before;
}

// Less with every sequence begun since its last use.
double KeptSequences::value(const Checkpoint& checkpoint) const {
  const double tokens = tokens_behind_previous(checkpoint) * (checkpoint.parked ? kParkedValue : 1);
  return tokens / static_cast<double>(1 + begun_ - checkpoint.used);
}

void KeptSequences::keep(SequenceId id, std::span<const int32_t> tokens, uint32_t prompt_tokens,
                         Clock::time_point now) {
  if (tokens.empty()) return close(id);
  Record& record = record_of(id);
  changed_ = true;
  record.running = false;
  record.tokens.assign(tokens.begin(), tokens.end());
  const uint32_t end = static_cast<uint32_t>(tokens.size()), begin = std::max(record.reused, prompt_tokens);
  if (begin < end && !record.generated.empty() && record.generated.back().end == begin) {
    record.generated.back().end = end;
  } else if (begin < end) {
    record.generated.push_back({begin, end});
  }
  record.used = begun_;
  record.idle_since = now;
  record.state = ++last_state_;
  record.parked = false;
}

void KeptSequences::close(SequenceId id) {
  changed_ = true;
  forget_beyond(id, 0);
  Record& record = record_of(id);
  record.running = false;
  record.state = 0;
  record.closing = true;
  if (locked(id)) {
    interrupt(id);
  } else {
    remove(id);
  }
}

void KeptSequences::remove(SequenceId id) {
  std::erase_if(records_, [&](const Record& record) { return record.id == id; });
  device_.close_sequence(id);
}

void KeptSequences::forget_beyond(SequenceId owner, uint32_t tokens) {
  std::erase_if(checkpoints_, [&](const Checkpoint& checkpoint) {
    return checkpoint.owner == owner && checkpoint.tokens > tokens;
  });
}

uint32_t KeptSequences::running() const {
  return static_cast<uint32_t>(std::ranges::count(records_, true, &Record::running));
}

uint32_t KeptSequences::kept() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(records_, [](const Record& record) { return record.state != 0; }));
}

}  // namespace strata::gpu_worker
