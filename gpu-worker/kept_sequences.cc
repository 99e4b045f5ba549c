#include "gpu-worker/kept_sequences.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"

namespace strata::gpu_worker {
namespace {

uint32_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

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
                                                  const std::string& name_space, uint32_t shared_tokens) {
  CHECK(!tokens.empty());
  ++begun_;
  const Match match = longest(tokens.first(tokens.size() - 1), name_space);
  Begun begun;
  if (match.record != nullptr && !match.checkpoint) {
    match.record->running = true;
    begun = {match.record->id, match.tokens, ReuseSource::kLive};
  } else if (match.record != nullptr) {
    TRY(begun, go_on(match, tokens));
  } else {
    TRY(begun.sequence, open(std::nullopt));
  }
  Record& record = record_of(begun.sequence);
  record.name_space = name_space;
  record.shared_tokens = shared_tokens;
  record.used = begun_;
  return begun;
}

// The record or checkpoint that holds most of the tokens. Records can only be taken as a whole, and only when
// nobody runs them.
KeptSequences::Match KeptSequences::longest(std::span<const int32_t> tokens, const std::string& name_space) {
  Match best;
  for (Record& record : records_) {
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
Result<KeptSequences::Begun> KeptSequences::go_on(const Match& match, std::span<const int32_t> tokens) {
  const Checkpoint checkpoint = *match.checkpoint;
  const bool owner_runs = match.record->running;
  std::ranges::find(checkpoints_, checkpoint.slot, &Checkpoint::slot)->used = begun_;
  SequenceId own = checkpoint.owner;
  if (owner_runs || checkpoint.kind == CheckpointKind::kRoot) {
    if (Result<SequenceId> opened = open(checkpoint.owner)) {
      own = *opened;
    } else if (owner_runs) {
      return tl::unexpected(std::move(opened).error());
    }
  }
  if (own == checkpoint.owner) {
    forget_beyond(own, checkpoint.tokens);
  } else {
    device_.copy_pages(checkpoint.owner, own, checkpoint.tokens);
  }
  device_.restore(own, checkpoint.slot, checkpoint.tokens);
  Record& record = record_of(own);
  record.running = true;
  record.tokens.assign(tokens.begin(), tokens.begin() + checkpoint.tokens);
  return Begun{own, checkpoint.tokens, ReuseSource::kCheckpoint};
}

// A free sequence, or that of the kept one that was used longest ago, other than `spared`.
Result<SequenceId> KeptSequences::open(std::optional<SequenceId> spared) {
  Result<SequenceId> id = device_.open_sequence();
  if (!id) {
    const Record* oldest = nullptr;
    for (const Record& record : records_) {
      if (record.running || record.id == spared) continue;
      if (oldest == nullptr || record.used < oldest->used) oldest = &record;
    }
    if (oldest == nullptr) return id;
    close(oldest->id);
    id = device_.open_sequence();
    if (!id) return id;
  }
  records_.push_back(
      {.id = *id, .running = true, .tokens = {}, .name_space = {}, .shared_tokens = 0, .used = begun_});
  return id;
}

void KeptSequences::checkpoint(SequenceId id, std::span<const int32_t> tokens, CheckpointKind kind) {
  Record& record = record_of(id);
  const auto count = static_cast<uint32_t>(tokens.size());
  CHECK(record.tokens.size() <= count, "a checkpoint behind {} tokens, {} are known", count,
        record.tokens.size());
  record.tokens.insert(record.tokens.end(),
                       tokens.begin() + static_cast<std::ptrdiff_t>(record.tokens.size()), tokens.end());
  for (Checkpoint& made : checkpoints_) {
    if (made.owner == id && made.tokens == count) {
      made.used = begun_;
      return;
    }
  }
  const std::optional<uint32_t> slot = free_slot();
  if (!slot) return;
  device_.capture(id, *slot);
  checkpoints_.push_back({.slot = *slot, .owner = id, .tokens = count, .kind = kind, .used = begun_});
}

std::optional<uint32_t> KeptSequences::free_slot() {
  const uint32_t slots = device_.checkpoint_slots();
  for (uint32_t slot = 0; slot < slots; ++slot) {
    if (std::ranges::find(checkpoints_, slot, &Checkpoint::slot) == checkpoints_.end()) return slot;
  }
  const auto least = std::ranges::min_element(
      checkpoints_, {}, [this](const Checkpoint& checkpoint) { return value(checkpoint); });
  if (least == checkpoints_.end()) return std::nullopt;
  const uint32_t slot = least->slot;
  checkpoints_.erase(least);
  return slot;
}

// The tokens that would have to be read again without it, less with every sequence begun since its last use.
double KeptSequences::value(const Checkpoint& checkpoint) const {
  uint32_t before = 0;
  for (const Checkpoint& other : checkpoints_) {
    if (other.owner == checkpoint.owner && other.tokens < checkpoint.tokens)
      before = std::max(before, other.tokens);
  }
  const double tokens = checkpoint.tokens - before;
  return tokens / static_cast<double>(1 + begun_ - checkpoint.used);
}

void KeptSequences::keep(SequenceId id, std::span<const int32_t> tokens) {
  if (tokens.empty()) return close(id);
  Record& record = record_of(id);
  record.running = false;
  record.tokens.assign(tokens.begin(), tokens.end());
  record.used = begun_;
}

void KeptSequences::close(SequenceId id) {
  forget_beyond(id, 0);
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

uint32_t KeptSequences::kept() const { return static_cast<uint32_t>(records_.size()) - running(); }

}  // namespace strata::gpu_worker
