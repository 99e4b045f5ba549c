#pragma once
// What a snapshot is made of. A snapshot is the complete saved state of a sequence after its first n tokens:
//   the fixed part   one blob of the same size at every position (recurrent and convolution states, the
//   indexer's
//                    tail, the n-gram context; model-qwen4exp.md section 10), opaque here, with a table of
//                    named parts;
//   KV pages         P tokens each, all attention layers together, opaque bytes of one size. A page is
//   determined by the
//                    tokens up to its end (numbers contract), so snapshots share pages by key (keys.h);
//   the tail page    the last n mod P tokens; belongs to its snapshot alone.
// The released model: fixed part about 113 MiB, a page of 64 tokens about 1.6 MiB.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/snapshot/hash128.h"

namespace strata::snapshot {

// Namespace of the roots that the operator declared shared: seen from every other one.
Hash128 shared_name_space();

using SnapshotId =
    Hash128;  // names a state: the same tokens under the same identity and namespace have the same id

inline constexpr uint32_t kPartsMax = 4096;     // 36 layers x 2 and a few more in the released model
inline constexpr uint32_t kNameBytesMax = 127;  // of a part, a fingerprint, a format
inline constexpr uint32_t kOptionsBytesMax = 8192;
inline constexpr uint32_t kPageTokensMax = 65536;
inline constexpr uint32_t kSnapshotTokensMax = 1u << 24;
inline constexpr uint64_t kFixedBytesMax = uint64_t{1} << 34;
inline constexpr uint64_t kPageBytesMax = uint64_t{1} << 32;

// A named piece of the fixed part, with a checksum of its own in every snapshot.
struct PartLayout {
  std::string name;     // "delta_net.3.state"
  uint64_t offset = 0;  // from the beginning of the fixed part
  uint64_t bytes = 0;
  friend bool operator==(const PartLayout&, const PartLayout&) = default;
};

// Everything besides the tokens that decides what the bytes of a state are and mean. States of two identities
// have nothing to do with each other: a snapshot of another identity is refused whole.
struct StateIdentity {
  std::string model_fingerprint;  // GgufFile::fingerprint()
  std::string numerics;           // "reproducible"
  std::string kv_format;          // "float16"
  uint32_t layout_version = 0;    // of the bytes inside of parts and pages; the device's
  uint32_t page_tokens = 0;       // P
  uint64_t page_bytes = 0;
  uint64_t fixed_bytes = 0;
  std::vector<PartLayout>
      parts;            // ascending offset, no overlap; they cover whatever of the fixed part means anything
  std::string options;  // what else changes states, in the writer's canonical text ("control_vector=...\n")
  friend bool operator==(const StateIdentity&, const StateIdentity&) = default;
};

// kInvalidArgument, naming the field.
Status check_identity(const StateIdentity& identity);
std::vector<std::byte> serialize(const StateIdentity& identity);
// kDataLoss: cut off, or not a valid identity.
Result<StateIdentity> parse_identity(std::span<const std::byte> bytes);
// Hash of serialize(): what headers and keys carry.
Hash128 digest(const StateIdentity& identity);

// Checksums of the parts as they lie in `fixed` (identity.fixed_bytes).
std::vector<uint64_t> part_checksums(const StateIdentity& identity, std::span<const std::byte> fixed);
// kDataLoss: names the first part whose bytes are not those that the checksums were made of, or a wrong count
// of checksums.
Status check_parts(const StateIdentity& identity, std::span<const std::byte> fixed,
                   std::span<const uint64_t> checksums);

// Why a state was kept, which says how likely somebody comes back to it (value.h).
enum class SnapshotKind : uint8_t {
  kRoot = 0,            // end of the system prompt and tools: every new chat of a client begins here
  kTurn = 1,            // a message boundary
  kBeforeLastUser = 2,  // where editing the last user message goes on
  kInterval = 3,        // every N prompt tokens
  kEnd = 4,             // where a turn ended: the next one goes on here
};
inline constexpr uint32_t kSnapshotKinds = 5;
std::string_view kind_name(SnapshotKind kind);  // "root", "turn", "before_last_user", "interval", "end"

enum class Tier : uint8_t { kRam = 0, kDisk = 1 };
inline constexpr uint32_t kTiers = 2;
std::string_view tier_name(Tier tier);  // "ram", "disk"

// A piece of the token list that was generated here, [begin, end).
struct TokenRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// What a listing shows of a snapshot. Times are Unix time in milliseconds.
struct SnapshotInfo {
  SnapshotId id;
  Hash128 name_space;     // hash of the API key, or of "shared"; snapshots of two namespaces never meet
  uint32_t position = 0;  // tokens
  SnapshotKind kind = SnapshotKind::kTurn;
  double cost_seconds = 0;  // what reading all its tokens anew would take
  SnapshotId parent;        // the longest other snapshot here that is a prefix of it; zero: none
  SnapshotId history;       // the conversation: all that grew out of one beginning after a root (catalog.h)
  int64_t created_ms = 0;
  int64_t last_used_ms = 0;
  uint64_t own_bytes = 0;     // what removing it frees
  uint64_t shared_bytes = 0;  // pages that others hold, too
  bool in_ram = false;
  bool on_disk = false;
  bool pinned = false;    // somebody reads it at the moment
  bool diverged = false;  // its history went on another way and nobody has used it since
};

}  // namespace strata::snapshot
