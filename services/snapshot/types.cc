#include "services/snapshot/types.h"

#include "services/base/check.h"
#include "services/snapshot/byte_codec.h"

namespace strata::snapshot {
namespace {

Status check_text(std::string_view field, std::string_view text) {
  if (text.empty()) return fail(Code::kInvalidArgument, "identity: {} is empty", field);
  if (text.size() > kNameBytesMax) {
    return fail(Code::kInvalidArgument, "identity: {} has {} bytes, at most {} are possible", field,
                text.size(), kNameBytesMax);
  }
  return {};
}

Status check_range(std::string_view field, uint64_t value, uint64_t min, uint64_t max) {
  if (value >= min && value <= max) return {};
  return fail(Code::kInvalidArgument, "identity: {} is {}, expected {} to {}", field, value, min, max);
}

Status check_part_table(const StateIdentity& identity) {
  TRY_OK(check_range("count of parts", identity.parts.size(), 1, kPartsMax));
  uint64_t end = 0;
  for (const PartLayout& part : identity.parts) {
    TRY_OK(check_text("name of a part", part.name));
    // Not offset + bytes: that wraps in a hostile file.
    const bool inside = part.offset >= end && part.offset <= identity.fixed_bytes &&
                        part.bytes <= identity.fixed_bytes - part.offset;
    if (!inside || part.bytes == 0) {
      return fail(Code::kInvalidArgument,
                  "identity: part {} at {} with {} bytes overlaps the one before, is empty, or ends outside "
                  "of the {} fixed bytes",
                  part.name, part.offset, part.bytes, identity.fixed_bytes);
    }
    end = part.offset + part.bytes;
  }
  return {};
}

}  // namespace

Status check_identity(const StateIdentity& identity) {
  TRY_OK(check_text("model fingerprint", identity.model_fingerprint));
  TRY_OK(check_text("numerics", identity.numerics));
  TRY_OK(check_text("KV format", identity.kv_format));
  TRY_OK(check_range("tokens of a page", identity.page_tokens, 1, kPageTokensMax));
  TRY_OK(check_range("bytes of a page", identity.page_bytes, 1, kPageBytesMax));
  TRY_OK(check_range("fixed bytes", identity.fixed_bytes, 1, kFixedBytesMax));
  TRY_OK(check_range("bytes of options", identity.options.size(), 0, kOptionsBytesMax));
  return check_part_table(identity);
}

std::vector<std::byte> serialize(const StateIdentity& identity) {
  ByteWriter out;
  out.put(std::string_view(identity.model_fingerprint));
  out.put(std::string_view(identity.numerics));
  out.put(std::string_view(identity.kv_format));
  out.put(identity.layout_version);
  out.put(identity.page_tokens);
  out.put(identity.page_bytes);
  out.put(identity.fixed_bytes);
  out.put(static_cast<uint32_t>(identity.parts.size()));
  for (const PartLayout& part : identity.parts) {
    out.put(std::string_view(part.name));
    out.put(part.offset);
    out.put(part.bytes);
  }
  out.put(std::string_view(identity.options));
  return std::move(out).take();
}

Result<StateIdentity> parse_identity(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  StateIdentity identity;
  identity.model_fingerprint = in.get_text(kNameBytesMax);
  identity.numerics = in.get_text(kNameBytesMax);
  identity.kv_format = in.get_text(kNameBytesMax);
  identity.layout_version = in.get<uint32_t>();
  identity.page_tokens = in.get<uint32_t>();
  identity.page_bytes = in.get<uint64_t>();
  identity.fixed_bytes = in.get<uint64_t>();
  identity.parts.resize(in.get_count(sizeof(uint32_t) + 2 * sizeof(uint64_t)));
  for (PartLayout& part : identity.parts) {
    part.name = in.get_text(kNameBytesMax);
    part.offset = in.get<uint64_t>();
    part.bytes = in.get<uint64_t>();
  }
  identity.options = in.get_text(kOptionsBytesMax);
  if (!in.ok() || !in.at_end()) {
    return fail(Code::kDataLoss, "identity: does not end where its {} bytes do", bytes.size());
  }
  if (const Status valid = check_identity(identity); !valid.ok())
    return fail(Code::kDataLoss, "{}", valid.message());
  return identity;
}

Hash128 digest(const StateIdentity& identity) { return hash128(serialize(identity)); }

std::vector<uint64_t> part_checksums(const StateIdentity& identity, std::span<const std::byte> fixed) {
  CHECK(fixed.size() == identity.fixed_bytes, "{} and {}", fixed.size(), identity.fixed_bytes);
  std::vector<uint64_t> checksums;
  checksums.reserve(identity.parts.size());
  for (const PartLayout& part : identity.parts)
    checksums.push_back(checksum64(fixed.subspan(part.offset, part.bytes)));
  return checksums;
}

Status check_parts(const StateIdentity& identity, std::span<const std::byte> fixed,
                   std::span<const uint64_t> checksums) {
  if (checksums.size() != identity.parts.size()) {
    return fail(Code::kDataLoss, "{} checksums for {} parts", checksums.size(), identity.parts.size());
  }
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    const PartLayout& part = identity.parts[i];
    const uint64_t found = checksum64(fixed.subspan(part.offset, part.bytes));
    if (found != checksums[i]) {
      return fail(Code::kDataLoss, "part {} ({} bytes at {}): checksum {:016x}, expected {:016x}", part.name,
                  part.bytes, part.offset, found, checksums[i]);
    }
  }
  return {};
}

Hash128 shared_name_space() { return hash128(std::as_bytes(std::span(std::string_view("shared")))); }

std::string_view kind_name(SnapshotKind kind) {
  switch (kind) {
    case SnapshotKind::kRoot:
      return "root";
    case SnapshotKind::kTurn:
      return "turn";
    case SnapshotKind::kBeforeLastUser:
      return "before_last_user";
    case SnapshotKind::kInterval:
      return "interval";
    case SnapshotKind::kEnd:
      return "end";
  }
  return "unknown";
}

std::string_view tier_name(Tier tier) { return tier == Tier::kRam ? "ram" : "disk"; }

}  // namespace strata::snapshot
