#pragma once
// Where a state of a prompt is worth keeping while it is read (rules C3, C4; design: "Positions worth a
// checkpoint"). Recurrent layers cannot be rewound: what is not kept on the way is not there later.

#include <cstdint>
#include <vector>

#include "gateway/conversations/prompt_landmarks.h"
#include "services/snapshot/types.h"

namespace strata::gateway {

struct CheckpointPosition {
  uint32_t position = 0;  // a state after exactly so many tokens
  snapshot::SnapshotKind kind = snapshot::SnapshotKind::kInterval;
  bool operator==(const CheckpointPosition&) const = default;
};

struct CheckpointOptions {
  // A checkpoint at every multiple of this, counted from the first token, so that prompts which share a
  // beginning agree about the places; 0: none.
  uint32_t every_tokens = 2048;
  // Of one prompt. Each costs the fixed part of a state (113 MiB in the released model).
  uint32_t positions_max = 16;
  // A checkpoint that saves fewer tokens than this over the one before is not kept.
  uint32_t gap_tokens_min = 8;
  // Positions are rounded down to multiples of this: where the device reads prompts in chunks that are cut at
  // fixed multiples, a state between two cuts would let later chunks be cut elsewhere, and so change
  // rounding.
  uint32_t align_tokens = 1;
  // What an engine reads at once that ends a chunk at each position; 0: positions cost no chunks. A chunk of
  // a large model takes about the same time whatever its length (all missed experts are copied for it). So
  // intervals lie where chunks end anyway, and there are no more positions than two and one for each full
  // chunk.
  uint32_t chunk_tokens = 0;
  // The state at reused_tokens stays. A sequence that goes on from its own end takes that state along, and
  // then a place right behind it is worth keeping.
  bool reused_stays = true;
  // A place right before the last token, whatever the rest of the options say: others are about to read the
  // whole prompt, too. None where there is one so close that it makes no difference (gap_tokens_min).
  bool before_last_token = false;
};

// Rising positions in (reused_tokens, prompt_tokens): what was reused has its checkpoints already, and a
// state after the whole prompt is the running sequence itself. Of more than positions_max those are left out
// whose loss costs least: the tokens to be read again from the one before, times how likely requests are to
// need it (likely for roots and last messages, less for turns, least for intervals).
std::vector<CheckpointPosition> checkpoint_positions(const PromptLandmarks& landmarks, uint32_t prompt_tokens,
                                                     uint32_t reused_tokens,
                                                     const CheckpointOptions& options);

}  // namespace strata::gateway
