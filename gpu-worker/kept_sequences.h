#pragma once
// The sequences that are on the device: those that run, and those that have ended and are kept in case their
// conversation goes on. Beside them checkpoints: states at positions further back, from which a sequence can
// be rewound or another one can begin (a recurrent state has no inverse). Used by the window loop's thread
// only, between windows.
//
// States can be copied out (parked) and in while windows run. A sequence and a slot that are being copied are
// locked: the sequence may go on, because what it has read does not change by that, but it is neither rewound
// nor closed, and the slot is not written.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gpu-worker/device.h"
#include "gpu-worker/kept_states.h"

namespace strata::gpu_worker {

class KeptSequences {
 public:
  using Clock = std::chrono::steady_clock;

  explicit KeptSequences(Device& device);
  ~KeptSequences();  // closes all; nothing is being copied any more
  KeptSequences(const KeptSequences&) = delete;
  KeptSequences& operator=(const KeptSequences&) = delete;

  // Whether a sequence that is in the way, and not parked, may be parked first.
  enum class Patience { kNone, kUntilParked };

  struct Begun {
    SequenceId sequence;
    uint32_t reused = 0;  // tokens that the sequence holds already
    ReuseSource source = ReuseSource::kNone;
  };
  // A sequence for these tokens, which holds as many of them as is known, at most all but one: the last one's
  // row chooses the next token. Reuses only what was begun in the same namespace, or lies within a root that
  // was declared shared. kResourceExhausted: all sequences are running. kUnavailable: what is in the way is
  // being copied or will be now; ask again at another boundary.
  Result<Begun> begin(std::span<const int32_t> tokens, const snapshot::Hash128& name_space,
                      uint32_t shared_tokens, Patience patience = Patience::kNone);
  // What begin() would reuse.
  uint32_t known(std::span<const int32_t> tokens, const snapshot::Hash128& name_space);

  // The sequence has read exactly `tokens`, or will have in the window that is about to run, and keeps a
  // state of them: in the slot that is told, where the caller lets it be captured before anything else
  // happens. When all slots are taken the least valuable checkpoint goes, perhaps one that the same window is
  // to make. Nothing: there is such a state already, or all slots are being copied.
  std::optional<uint32_t> checkpoint(SequenceId id, std::span<const int32_t> tokens,
                                     snapshot::SnapshotKind kind);
  // Of what has been read of an answer, in case it is to end before what was generated: the last two are
  // kept.
  void checkpoint_answer(SequenceId id, std::span<const int32_t> tokens);

  // The sequence runs no longer and has read exactly `tokens`; what it has read beyond prompt_tokens was
  // generated. Kept until another needs its place.
  void keep(SequenceId id, std::span<const int32_t> tokens, uint32_t prompt_tokens,
            Clock::time_point now = Clock::now());
  // Nothing is known of its state any more.
  void close(SequenceId id);

  // --- Parking. A lock ends with unlock(), whatever has become of the sequence; `stop` says that somebody
  // waits for that.
  struct Lock {
    SequenceId sequence;
    uint32_t slot = 0;
    std::shared_ptr<std::atomic<bool>> stop;
  };
  void unlock(const Lock& lock);

  // All that is kept goes soon: nothing waits until it has been left alone.
  void leave() { leaving_ = true; }
  // From now on states are (not) copied out before they go; nothing counts as parked any more.
  void set_parking(bool possible);
  struct ToPark {
    uint64_t state = 0;
    Lock lock;
    StateToPark what;  // without its cost
  };
  // What is parked next; locked. First of a sequence that is in the way, then of one that has been left alone
  // for `idle`, or at all while newcomers push others out; last, checkpoints that may be gone before their
  // sequence is left alone.
  std::optional<ToPark> next_to_park(Clock::time_point now, Clock::duration idle);
  // When the next sequence is due; the epoch: it is in the way.
  std::optional<Clock::time_point> next_due(Clock::duration idle) const;
  void set_parked(uint64_t state);  // or it never can be

  // --- Restoring. A sequence and a slot to copy a state into; both locked. Errors as begin().
  Result<Lock> place(std::span<const int32_t> tokens, const snapshot::Hash128& name_space,
                     uint32_t shared_tokens, Patience patience);
  // The lock's slot holds the fixed part of the state behind these tokens; the sequence's pages follow until
  // the lock ends.
  void restored(const Lock& lock, std::span<const int32_t> tokens,
                std::vector<snapshot::TokenRange> generated);

  // What has become different since the last call, for whoever keeps a list of the states.
  std::vector<StateChange> take_changes();

  uint32_t running() const;
  uint32_t kept() const;
  uint32_t checkpoints() const { return static_cast<uint32_t>(checkpoints_.size()); }

 private:
  struct Record {
    SequenceId id;
    bool running = true;
    bool closing = false;         // as soon as it is no longer locked
    std::vector<int32_t> tokens;  // as far as is known: up to the last checkpoint, or all
    std::vector<snapshot::TokenRange> generated = {};  // of them
    snapshot::Hash128 name_space = {};
    uint32_t shared_tokens = 0;
    uint64_t used = 0;  // when, counted in begun sequences
    Clock::time_point idle_since = {};
    uint64_t state = 0;       // its end, when it is kept
    bool parked = false;      // the end
    bool in_the_way = false;  // somebody waits for its place
    uint32_t reused = 0;      // when it was begun
  };
  struct Checkpoint {
    uint64_t state = 0;
    uint32_t slot = 0;
    SequenceId owner;
    uint32_t tokens = 0;
    snapshot::SnapshotKind kind = snapshot::SnapshotKind::kTurn;
    uint64_t used = 0;
    bool parked = false;
    bool in_answer = false;
  };
  struct Match {
    Record* record = nullptr;
    std::optional<Checkpoint> checkpoint;  // none: the whole sequence
    uint32_t tokens = 0;
  };

  Record& record_of(SequenceId id);
  Match longest(std::span<const int32_t> tokens, const snapshot::Hash128& name_space);
  Result<SequenceId> open(std::optional<SequenceId> spared, Patience patience);
  Result<Begun> go_on(const Match& match, std::span<const int32_t> tokens, Patience patience);
  void forget_beyond(SequenceId owner, uint32_t tokens);
  void remove(SequenceId id);
  std::optional<uint32_t> free_slot();
  std::optional<uint32_t> unused_slot() const;
  bool slot_locked(uint32_t slot) const;
  uint32_t tokens_behind_previous(const Checkpoint& checkpoint) const;
  double value(const Checkpoint& checkpoint) const;
  bool locked(SequenceId id) const;
  void interrupt(SequenceId id);
  bool crowded() const;
  bool can_be_parked(const Record& record) const;
  bool settled(const Record& record) const;
  Lock lock(SequenceId id, uint32_t slot);
  ToPark park_end(Record& record, uint32_t slot);
  ToPark park_checkpoint(const Record& record, const Checkpoint& checkpoint);
  Checkpoint* unparked_checkpoint(const Record& record);
  const Checkpoint* endangered_checkpoint() const;
  const Record* next_unsettled() const;
  bool shared(const Record& record, const Checkpoint& checkpoint) const {
    return checkpoint.tokens <= record.shared_tokens;
  }

  Device& device_;
  std::vector<Record> records_;
  std::vector<Checkpoint> checkpoints_;
  std::vector<Lock> locks_;
  uint64_t begun_ = 0;
  uint64_t served_ = 0;                 // those that got a sequence
  std::optional<uint64_t> pushed_out_;  // served_ when a kept one went for a newcomer
  uint64_t last_state_ = 0;
  bool parking_ = false;
  bool leaving_ = false;
  bool changed_ = false;                            // something to tell, perhaps
  std::unordered_map<uint64_t, StateSource> told_;  // what take_changes() said last
  std::unordered_set<uint64_t> taken_;              // since then
};

}  // namespace strata::gpu_worker
