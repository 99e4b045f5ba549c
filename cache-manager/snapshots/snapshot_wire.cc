#include "cache-manager/snapshots/snapshot_wire.h"

#include <span>
#include <utility>

#include "services/rpc/snapshot_words.h"

namespace strata::cache_manager {

using snapshot::Hash128;

namespace {

void write_extent(const snapshot::Extent& from, v1::Extent& to) {
  to.set_offset(from.offset);
  to.set_bytes(from.bytes);
}

template <class Message>
void write_tokens(const std::vector<int32_t>& tokens, const std::vector<snapshot::TokenRange>& generated,
                  Message& to) {
  to.mutable_tokens()->Add(tokens.begin(), tokens.end());
  rpc::add_ranges(generated, *to.mutable_generated());
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
      written.set_base(added.base.bytes());
      written.set_base_tokens(added.base_tokens);
    }
    write_tokens(added.tokens, added.generated, written);
  }
  void operator()(const FeedRemoved& removed) const {
    to.mutable_removed()->set_id(removed.id.bytes());
    to.mutable_removed()->set_cause(removed.cause);
  }
  void operator()(const FeedComplete&) const { to.mutable_complete(); }
};

}  // namespace

Result<Hash128> hash_from_wire(const std::string& bytes, std::string_view field) {
  auto hash = Hash128::from_bytes(bytes);
  if (!hash) return fail(Code::kInvalidArgument, "{}: {}", field, hash.error().message());
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
  reserve.generated = rpc::ranges_from_wire(request.generated());
  const auto kind = rpc::kind_from_wire(request.kind());
  if (!kind)
    return fail(Code::kInvalidArgument, "kind: {} is none of a snapshot's", static_cast<int>(request.kind()));
  reserve.kind = *kind;
  reserve.cost_seconds = request.cost_seconds();
  return reserve;
}

snapshot::CopyChecksums checksums_from_wire(const v1::CommitSnapshotRequest& request) {
  return {.parts = {request.part_checksums().begin(), request.part_checksums().end()},
          .pages = {request.page_checksums().begin(), request.page_checksums().end()}};
}

void write_reservation(const snapshot::Reservation& from, v1::ReserveSnapshotResponse& to) {
  to.set_ticket(from.ticket);
  to.set_id(from.id.bytes());
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
  rpc::add_ranges(from.tokens.generated, *to.mutable_generated());
}

void write_snapshot(const snapshot::SnapshotInfo& from, v1::Snapshot& to) {
  to.set_id(from.id.bytes());
  to.set_name_space(from.name_space.bytes());
  to.set_kind(rpc::to_wire(from.kind));
  to.set_history(from.history.bytes());
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
