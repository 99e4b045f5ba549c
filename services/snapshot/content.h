#pragma once
// A whole snapshot on its way between tiers and files: what it is, and where its bytes lie. And the manifest:
// the same without the bytes, as it stands in a file.

#include <cstdint>
#include <span>
#include <vector>

#include "services/base/status.h"
#include "services/snapshot/keys.h"
#include "services/snapshot/types.h"

namespace strata::snapshot {

struct Manifest {
  SnapshotId id;
  Hash128 name_space;
  SnapshotKind kind = SnapshotKind::kTurn;
  double cost_seconds = 0;
  int64_t created_ms = 0;
  int64_t last_used_ms = 0;
  StoreSeed seed{};                           // of the store that made the keys
  std::vector<TokenWord> words = {};          // (position)
  std::vector<Hash128> page_keys = {};        // (position / P)
  std::vector<uint64_t> page_checksums = {};  // (position / P)
  std::vector<uint64_t> part_checksums = {};
  uint64_t tail_bytes = 0;
  uint64_t tail_checksum = 0;
};

std::vector<std::byte> serialize(const Manifest& manifest);
// kDataLoss: its numbers do not go together, or not with the identity.
Status check_manifest(const Manifest& manifest, const StateIdentity& identity);
// kDataLoss: cut off, or no manifest of a snapshot of this identity.
Result<Manifest> parse_manifest(std::span<const std::byte> bytes, const StateIdentity& identity);
inline constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;

// The bytes belong to whoever made it and must stay until whoever got it is done.
struct SnapshotContent {
  Manifest manifest;
  std::span<const std::byte> fixed;
  std::vector<std::span<const std::byte>> pages;  // full ones, in order
  std::span<const std::byte> tail;
};

}  // namespace strata::snapshot
