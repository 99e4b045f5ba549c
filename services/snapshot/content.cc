#include "services/snapshot/content.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "services/snapshot/byte_codec.h"

namespace strata::snapshot {

std::vector<std::byte> serialize(const Manifest& manifest) {
  ByteWriter out;
  out.put(manifest.id);
  out.put(manifest.name_space);
  out.put(static_cast<uint32_t>(manifest.kind));
  out.put(manifest.cost_seconds);
  out.put(manifest.created_ms);
  out.put(manifest.last_used_ms);
  out.raw(manifest.seed);
  out.put_list(std::span<const TokenWord>(manifest.words));
  out.put(static_cast<uint32_t>(manifest.page_keys.size()));
  for (std::size_t i = 0; i < manifest.page_keys.size(); ++i) {
    out.put(manifest.page_keys[i]);
    out.put(manifest.page_checksums[i]);
  }
  out.put_list(std::span<const uint64_t>(manifest.part_checksums));
  out.put(manifest.tail_bytes);
  out.put(manifest.tail_checksum);
  return std::move(out).take();
}

Status check_manifest(const Manifest& manifest, const StateIdentity& identity) {
  const std::size_t tokens = manifest.words.size();
  const std::size_t pages = tokens / identity.page_tokens;
  const bool has_tail = tokens % identity.page_tokens != 0;
  const bool fits =
      tokens > 0 && tokens <= kSnapshotTokensMax && manifest.page_keys.size() == pages &&
      manifest.page_checksums.size() == pages && manifest.part_checksums.size() == identity.parts.size() &&
      static_cast<uint32_t>(manifest.kind) < kSnapshotKinds && has_tail == (manifest.tail_bytes > 0) &&
      manifest.tail_bytes <= identity.page_bytes && std::isfinite(manifest.cost_seconds) &&
      manifest.cost_seconds >= 0 && !manifest.id.is_zero() && !manifest.name_space.is_zero();
  if (fits) return {};
  return fail(
      Code::kDataLoss,
      "manifest: {} tokens, {} pages, {} parts, kind {}, {} bytes of tail and {} s do not go together",
      tokens, manifest.page_keys.size(), manifest.part_checksums.size(), static_cast<uint32_t>(manifest.kind),
      manifest.tail_bytes, manifest.cost_seconds);
}

Result<Manifest> parse_manifest(std::span<const std::byte> bytes, const StateIdentity& identity) {
  ByteReader in(bytes);
  Manifest manifest;
  manifest.id = in.get_hash();
  manifest.name_space = in.get_hash();
  const auto kind = in.get<uint32_t>();
  manifest.kind = static_cast<SnapshotKind>(std::min(kind, kSnapshotKinds));  // no kind, if it is too large
  manifest.cost_seconds = in.get<double>();
  manifest.created_ms = in.get<int64_t>();
  manifest.last_used_ms = in.get<int64_t>();
  for (std::byte& byte : manifest.seed) byte = static_cast<std::byte>(in.get<uint8_t>());
  manifest.words = in.get_list<TokenWord>();
  const uint32_t pages = in.get_count(sizeof(Hash128) + sizeof(uint64_t));
  for (uint32_t i = 0; i < pages; ++i) {
    manifest.page_keys.push_back(in.get_hash());
    manifest.page_checksums.push_back(in.get<uint64_t>());
  }
  manifest.part_checksums = in.get_list<uint64_t>();
  manifest.tail_bytes = in.get<uint64_t>();
  manifest.tail_checksum = in.get<uint64_t>();
  if (!in.ok() || !in.at_end())
    return fail(Code::kDataLoss, "manifest: does not end where its {} bytes do", bytes.size());

  TRY_OK(check_manifest(manifest, identity));
  return manifest;
}

}  // namespace strata::snapshot
