#pragma once
// What is said about the states that sequences leave behind on the device.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "services/snapshot/types.h"

namespace strata::gpu_worker {

// A state worth keeping on the way through a prompt.
struct CheckpointWish {
  uint32_t tokens = 0;  // the state behind so many tokens of the prompt
  // Others often begin like a root, so it is copied, not rewound to.
  snapshot::SnapshotKind kind = snapshot::SnapshotKind::kTurn;
  bool operator==(const CheckpointWish&) const = default;
};

// Where the state came from that an answer went on from.
enum class ReuseSource : uint8_t { kNone, kLive, kCheckpoint, kRam, kDisk };

// A state that is to be stored outside the device.
struct StateToPark {
  snapshot::Hash128 name_space;
  std::vector<int32_t> tokens;
  std::vector<snapshot::TokenRange> generated;  // of the tokens
  snapshot::SnapshotKind kind = snapshot::SnapshotKind::kEnd;
  double cost_seconds = 0;  // what reading all tokens anew would take
};

enum class StateSource : uint8_t {
  kRunning,     // a checkpoint of a sequence that is running
  kLive,        // an idle sequence, exactly there
  kCheckpoint,  // a checkpoint of an idle sequence
};

// One state on the device: it is new, its source is another one, or it is gone.
struct StateChange {
  enum class What : uint8_t { kAdded, kSource, kRemoved };
  What what = What::kAdded;
  uint64_t id = 0;  // never used twice
  StateSource source = StateSource::kLive;
  bool taken = false;  // with kRemoved: a sequence went on from it
  // With kAdded and kSource:
  snapshot::Hash128 name_space = {};
  bool shared = false;  // within a root that was declared shared
  // With kAdded:
  snapshot::SnapshotKind kind = snapshot::SnapshotKind::kEnd;
  std::vector<int32_t> tokens = {};
  std::vector<snapshot::TokenRange> generated = {};
};

inline std::vector<int32_t> first_tokens(const std::vector<int32_t>& tokens, uint32_t count) {
  return {tokens.begin(), tokens.begin() + count};
}
// The parts of rising ranges that lie before `end`.
inline std::vector<snapshot::TokenRange> first_ranges(const std::vector<snapshot::TokenRange>& ranges,
                                                      uint32_t end) {
  std::vector<snapshot::TokenRange> first;
  for (const snapshot::TokenRange& range : ranges) {
    if (range.begin < end) first.push_back({range.begin, std::min(range.end, end)});
  }
  return first;
}

}  // namespace strata::gpu_worker
