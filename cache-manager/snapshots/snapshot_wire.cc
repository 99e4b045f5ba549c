#include "cache-manager/snapshots/snapshot_wire.h"

#include <span>
#include <utility>

namespace strata::cache_manager {

using snapshot::Hash128;
using snapshot::SnapshotKind;

namespace {

constexpr std::size_t kHashBytes = 16;

// The wire's kinds are one higher: its 0 is "unspecified".
constexpr int kKindOffset = v1::SNAPSHOT_KIND_ROOT - static_cast<int>(SnapshotKind::kRoot);
static_assert(static_cast<int>(SnapshotKind::kEnd) + kKindOffset == v1::SNAPSHOT_KIND_END);
static_assert(static_cast<int>(SnapshotKind::kInterval) + kKindOffset == v1::SNAPSHOT_KIND_INTERVAL);

v1::SnapshotKind to_wire(SnapshotKind kind) {
  return static_cast<v1::SnapshotKind>(static_cast<int>(kind) + kKindOffset);
}

Result<SnapshotKind> kind_from_wire(v1::SnapshotKind kind) {
  const int here = static_cast<int>(kind) - kKindOffset;
  if (here < 0 || here >= static_cast<int>(snapshot::kSnapshotKinds))
    return fail(Code::kInvalidArgument, "kind: {} is none of a snapshot's", static_cast<int>(kind));
  return static_cast<SnapshotKind>(here);
}

void write_extent(const snapshot::Extent& from, v1::Extent& to) {
  to.set_offset(from.offset);
  to.set_bytes(from.bytes);
}

template <class Message>
void write_generated(const std::vector<snapshot::TokenRange>& generated, Message& to) {
  for (const snapshot::TokenRange& range : generated) {
    v1::TokenRange& added = *to.add_generated();
    added.set_begin(range.begin);
    added.set_end(range.end);
  }
}

template <class Message>
void write_tokens(const std::vector<int32_t>& tokens, const std::vector<snapshot::TokenRange>& generated,
                  Message& to) {
  to.mutable_tokens()->Add(tokens.begin(), tokens.end());
  write_generated(generated, to);
}

void write_use(const TierUse& from, v1::TierUse& to) {
  to.set_used_bytes(from.used_bytes);
  to.set_budget_bytes(from.budget_bytes);
  to.set_snapshots(from.snapshots);
}

struct EventWriter {
  v1::WatchSnapshotsResponse& to;
  void operator()(const FeedBegin& begin) const {
    v1::SnapshotsBegin& written = *to.mutable_begin();
    written.set_instance_id(begin.instance_id);
    written.set_identity(begin.identity.data(), begin.identity.size());
  }
  void operator()(const FeedAdded& added) const {
    v1::SnapshotAdded& written = *to.mutable_added();
    write_snapshot(added.info, *written.mutable_snapshot());
    if (!added.base.is_zero()) {
      written.set_base(strata::cache_manager::to_wire(added.base));
      written.set_base_tokens(added.base_tokens);
    }
    write_tokens(added.tokens, added.generated, written);
  }
  void operator()(const FeedRemoved& removed) const {
    to.mutable_removed()->set_id(strata::cache_manager::to_wire(removed.id));
    to.mutable_removed()->set_cause(removed.cause);
  }
  void operator()(const FeedComplete&) const { to.mutable_complete(); }
};

}  // namespace

std::string to_wire(const Hash128& hash) {
  std::string bytes;
  for (const uint64_t half : {hash.high, hash.low})
    for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(half >> shift));
  return bytes;
}

Result<Hash128> hash_from_wire(const std::string& bytes, std::string_view field) {
  if (bytes.size() != kHashBytes)
    return fail(Code::kInvalidArgument, "{}: {} bytes, expected {}", field, bytes.size(), kHashBytes);
  Hash128 hash;
  for (std::size_t i = 0; i < kHashBytes; ++i) {
    uint64_t& half = i < kHashBytes / 2 ? hash.high : hash.low;
    half = half << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return hash;
}

Result<Hash128> optional_hash_from_wire(const std::string& bytes, std::string_view field) {
  if (bytes.empty()) return Hash128{};
  return hash_from_wire(bytes, field);
}

Result<snapshot::StateIdentity> identity_from_wire(const std::string& bytes) {
  auto identity = snapshot::parse_identity(std::as_bytes(std::span(bytes)));
  if (!identity) return fail(Code::kInvalidArgument, "identity: {}", identity.error().message());
  return identity;
}

Result<SnapshotActor::Reserve> reserve_from_wire(const v1::ReserveSnapshotRequest& request) {
  SnapshotActor::Reserve reserve;
  TRY(reserve.name_space, hash_from_wire(request.name_space(), "name_space"));
  reserve.tokens.assign(request.tokens().begin(), request.tokens().end());
  for (const v1::TokenRange& range : request.generated())
    reserve.generated.push_back({.begin = range.begin(), .end = range.end()});
  TRY(reserve.kind, kind_from_wire(request.kind()));
  reserve.cost_seconds = request.cost_seconds();
  return reserve;
}

snapshot::CopyChecksums checksums_from_wire(const v1::CommitSnapshotRequest& request) {
  return {.parts = {request.part_checksums().begin(), request.part_checksums().end()},
          .pages = {request.page_checksums().begin(), request.page_checksums().end()}};
}

void write_reservation(const snapshot::Reservation& from, v1::ReserveSnapshotResponse& to) {
  to.set_ticket(from.ticket);
  to.set_id(to_wire(from.id));
  write_extent(from.fixed, *to.mutable_fixed());
  for (const snapshot::PageToCopy& page : from.pages) {
    v1::PageToCopy& added = *to.add_pages();
    added.set_page(page.page_index);
    added.set_tokens(page.tokens);
    write_extent(page.extent, *added.mutable_extent());
  }
}

void write_opened(const OpenedSnapshot& from, v1::OpenSnapshotResponse& to) {
  const snapshot::OpenSnapshot& open = from.snapshot;
  to.set_ticket(open.ticket);
  to.set_tokens(open.position);
  write_extent(open.fixed, *to.mutable_fixed());
  to.mutable_part_checksums()->Add(open.part_checksums.begin(), open.part_checksums.end());
  for (const snapshot::StoredPage& page : open.pages) {
    v1::StoredPage& added = *to.add_pages();
    added.set_page(page.page_index);
    added.set_tokens(page.tokens);
    write_extent(page.extent, *added.mutable_extent());
    added.set_checksum(page.checksum);
  }
  to.set_from_disk(from.from_disk);
  to.mutable_token_ids()->Add(from.tokens.tokens.begin(), from.tokens.tokens.end());
  write_generated(from.tokens.generated, to);
}

void write_snapshot(const snapshot::SnapshotInfo& from, v1::Snapshot& to) {
  to.set_id(to_wire(from.id));
  to.set_name_space(to_wire(from.name_space));
  to.set_kind(to_wire(from.kind));
  to.set_history(to_wire(from.history));
  to.set_position(from.position);
  to.set_in_memory(from.in_ram);
  to.set_on_disk(from.on_disk);
  to.set_cost_seconds(from.cost_seconds);
  to.set_bytes(from.own_bytes);
  to.set_created_ms(from.created_ms);
  to.set_used_ms(from.last_used_ms);
}

void write_listing(const SnapshotListing& from, v1::ListSnapshotsResponse& to) {
  for (const snapshot::SnapshotInfo& info : from.snapshots) write_snapshot(info, *to.add_snapshots());
  write_tokens(from.tokens.tokens, from.tokens.generated, to);
  write_use(from.room.ram, *to.mutable_memory());
  write_use(from.room.disk, *to.mutable_disk());
  to.set_disk_folder(from.room.disk_folder);
  to.set_disk_problem(from.room.disk_problem);
}

v1::WatchSnapshotsResponse to_wire(const FeedEvent& event) {
  v1::WatchSnapshotsResponse response;
  std::visit(EventWriter{response}, event);
  return response;
}

}  // namespace strata::cache_manager
