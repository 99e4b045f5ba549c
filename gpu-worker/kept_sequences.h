#pragma once
// The sequences that are on the device: those that run, and those that have ended and are kept in case their
// conversation goes on. Beside them checkpoints: states at positions further back, from which a sequence can
// be rewound or another one can begin (a recurrent state has no inverse). Used by the window loop's thread
// only, between windows.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu-worker/device.h"

namespace strata::gpu_worker {

// Why a position is worth a checkpoint. Others often begin like a root, so it is copied, not rewound to.
enum class CheckpointKind : uint8_t { kRoot, kMessage, kInterval };

struct CheckpointWish {
  uint32_t tokens = 0;  // the state behind so many tokens of the prompt
  CheckpointKind kind = CheckpointKind::kMessage;
  bool operator==(const CheckpointWish&) const = default;
};

enum class ReuseSource : uint8_t { kNone, kLive, kCheckpoint };

class KeptSequences {
 public:
  explicit KeptSequences(Device& device);
  ~KeptSequences();  // closes all
  KeptSequences(const KeptSequences&) = delete;
  KeptSequences& operator=(const KeptSequences&) = delete;

  struct Begun {
    SequenceId sequence;
    uint32_t reused = 0;  // tokens that the sequence holds already
    ReuseSource source = ReuseSource::kNone;
  };
  // A sequence for these tokens, which holds as many of them as is known, at most all but one: the last one's
  // row chooses the next token. Reuses only what was begun in the same namespace, or lies within a root that
  // was declared shared. kResourceExhausted: all sequences are running.
  Result<Begun> begin(std::span<const int32_t> tokens, const std::string& name_space,
                      uint32_t shared_tokens = 0);

  // The sequence has read exactly `tokens`, and keeps a state of them. When all slots are taken the least
  // valuable checkpoint goes.
  void checkpoint(SequenceId id, std::span<const int32_t> tokens, CheckpointKind kind);

  // The sequence runs no longer and has read exactly `tokens`. Kept until another needs its place.
  void keep(SequenceId id, std::span<const int32_t> tokens);
  // Nothing is known of its state any more.
  void close(SequenceId id);

  uint32_t running() const;
  uint32_t kept() const;
  uint32_t checkpoints() const { return static_cast<uint32_t>(checkpoints_.size()); }

 private:
  struct Record {
    SequenceId id;
    bool running = true;
    std::vector<int32_t> tokens;  // as far as is known: up to the last checkpoint, or all
    std::string name_space;
    uint32_t shared_tokens = 0;
    uint64_t used = 0;  // when, counted in begun sequences
  };
  struct Checkpoint {
    uint32_t slot = 0;
    SequenceId owner;
    uint32_t tokens = 0;
    CheckpointKind kind = CheckpointKind::kMessage;
    uint64_t used = 0;
  };
  struct Match {
    Record* record = nullptr;
    std::optional<Checkpoint> checkpoint;  // none: the whole sequence
    uint32_t tokens = 0;
  };

  Record& record_of(SequenceId id);
  Match longest(std::span<const int32_t> tokens, const std::string& name_space);
  Result<SequenceId> open(std::optional<SequenceId> spared);
  Result<Begun> go_on(const Match& match, std::span<const int32_t> tokens);
  void forget_beyond(SequenceId owner, uint32_t tokens);
  std::optional<uint32_t> free_slot();
  double value(const Checkpoint& checkpoint) const;

  Device& device_;
  std::vector<Record> records_;
  std::vector<Checkpoint> checkpoints_;
  uint64_t begun_ = 0;
};

}  // namespace strata::gpu_worker
