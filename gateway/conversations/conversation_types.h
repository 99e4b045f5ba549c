#pragma once
// The words that the index of known prefixes, its reports and its metrics share.

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "services/snapshot/types.h"

namespace strata::gateway {

using snapshot::SnapshotId;
using snapshot::TokenRange;

// Whose conversations they are. One namespace never sees another (rule I10).
using NamespaceId = snapshot::Hash128;
// Of the hash of an API key; of nothing when the server asks for none. No key has the shared one's.
NamespaceId key_namespace(std::string_view key_hash);
// Of roots that the operator declared shared: seen from every namespace.
NamespaceId shared_namespace();

// What a state depends on beside its tokens: states of different identities never stand in for each other
// (rule C16). The model is apart so that an answer can say what kept it from reusing more.
struct IndexIdentity {
  snapshot::Hash128 model;
  snapshot::Hash128 all;  // the model included
  auto operator<=>(const IndexIdentity&) const = default;
};
IndexIdentity index_identity(const snapshot::StateIdentity& identity);

// The parts of rising ranges that lie before `end`.
std::vector<TokenRange> clipped(std::span<const TokenRange> ranges, uint32_t end);

// Where a state is, the one that is ready sooner first.
enum class Source : uint8_t {
  kRunning,     // a checkpoint on the device, of a sequence that is running: copied, the sequence goes on
  kLive,        // an idle sequence on the device, exactly at this position: taken over as it is
  kCheckpoint,  // a checkpoint on the device whose sequence is idle or gone
  kRam,         // parked in host memory
  kDisk,        // parked on disk
};
std::string_view source_name(Source source);

// Who keeps a state: what is the engine's dies with the engine's process, what is the store's with the
// store's.
enum class Holder : uint8_t { kEngine, kStore };
constexpr Holder holder_of(Source source) {
  return source == Source::kRam || source == Source::kDisk ? Holder::kStore : Holder::kEngine;
}

// Why no more of a prompt was reused.
enum class MissCause : uint8_t {
  kNone,            // all but the last token was reused: there is no more
  kNew,             // nobody has read these tokens before
  kDiverged,        // known up to a token, then other tokens than before
  kEvicted,         // a state was there and had to make room, or was lost with the process that kept it
  kOptionsChanged,  // a state is there, made with other options
  kIdentity,        // a state is there, of another model
  kTooSmall,        // what could be reused is shorter than what is worth it
  kNoCheckpoint,    // the tokens are known, but no state was kept where they could be taken up
  kError,           // the state was there and could not be restored
};
std::string_view miss_cause_name(MissCause cause);

}  // namespace strata::gateway
