#pragma once
// What a snapshot is worth, so that the budget keeps what saves most time. Pure.
//
//   value = P(somebody comes back) x seconds lost if it is gone / bytes that removing it frees
//
// Seconds lost: not the whole cost of reading its tokens, but what is beyond the longest other snapshot that
// is a prefix of it, for that is where reading would begin. P falls by half every half_life_ms without use,
// times a weight for the place: a conversation goes on at its end, a chat begins at a root, an edit goes back
// to before the last user message; whatever else lies inside of a history is there for the rare case. The
// weights are judgement, not measurement: they order snapshots of about the same age, and any of them is
// outweighed by two half-lives.

#include <cstdint>

#include "services/snapshot/types.h"

namespace strata::snapshot {

struct ValueOptions {
  int64_t half_life_ms = 30 * 60 * 1000;  // conversations of a day compete; those of an hour ago stay ahead
};

struct ValueInputs {
  SnapshotKind kind = SnapshotKind::kTurn;
  bool leaf = true;          // no other snapshot here continues it
  bool elsewhere = false;    // a slower tier has it, too: removing it costs a read from there only
  double seconds_lost = 0;   // 0 or more
  int64_t idle_ms = 0;       // since the last use; below 0 (the clock was set back) counts as 0
  uint64_t freed_bytes = 1;  // 0 counts as 1
};

// Seconds per byte; finite, 0 or more.
double snapshot_value(const ValueInputs& inputs, const ValueOptions& options);

}  // namespace strata::snapshot
