#pragma once
// The words that the index of known prefixes, its reports and its metrics share.

#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace strata::gateway {

// 128 bits that somebody else chose so that no two are equal: random, or a hash. All zero is a value as any.
template <class Tag>
struct Id128 {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Id128&) const = default;
};
// A snapshot, as the engine or the snapshot store named it.
using SnapshotId = Id128<struct SnapshotTag>;
// Whose conversations they are: a hash of the API key. One namespace never sees another (rule I10).
using NamespaceId = Id128<struct NamespaceTag>;

template <class Tag>
struct Id128Hash {
  std::size_t operator()(const Id128<Tag>& id) const { return id.high * 0x9E3779B97F4A7C15u ^ id.low; }
};

// 32 hexadecimal digits.
std::string id_text(uint64_t high, uint64_t low);
inline std::string id_text(const SnapshotId& id) { return id_text(id.high, id.low); }

// Roots that the operator declared shared: seen from every namespace.
inline constexpr NamespaceId kSharedNamespace{.high = ~uint64_t{0}, .low = ~uint64_t{0}};

// What a state depends on beside its tokens: states of different identities never stand in for each other
// (rule C16). The two parts are apart so that an answer can say which of them kept it from reusing more.
struct StateIdentity {
  uint64_t model = 0;
  uint64_t options = 0;
  auto operator<=>(const StateIdentity&) const = default;
};

// model: the fingerprint of the model's file. options: name and value of everything else that changes the
// state (numerics, format of the KV, position scaling, control vectors); their order does not matter.
StateIdentity make_state_identity(std::string_view model,
                                  std::span<const std::pair<std::string_view, std::string_view>> options);

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
