#include "services/snapshot/disk_load.h"

#include <utility>

namespace strata::snapshot {

Result<DiskLoad> begin_load(Manifest manifest, SnapshotStore& ram, uint64_t owner) {
  DiskLoad load;
  load.manifest = std::move(manifest);
  const SnapshotId id = load.manifest.id;
  const auto tokens = unpack_tokens(load.manifest.words);
  const auto generated = unpack_generated(load.manifest.words);
  TRY(load.reservation, ram.reserve({.identity = ram.identity_digest(),
                                     .name_space = load.manifest.name_space,
                                     .tokens = tokens,
                                     .generated = generated,
                                     .kind = load.manifest.kind,
                                     .cost_seconds = load.manifest.cost_seconds,
                                     .tail_bytes = load.manifest.tail_bytes,
                                     .owner = owner}));
  if (load.reservation.id != id) {
    TRY_OK(ram.abandon(load.reservation.ticket));
    return fail(Code::kFailedPrecondition, "snapshot {} is called {} in RAM: the tiers have different seeds",
                id.text(), load.reservation.id.text());
  }
  return load;
}

Status load_piece(DiskTier& disk, const SnapshotStore& ram, const DiskLoad& load, uint32_t piece) {
  const SnapshotId& id = load.manifest.id;
  if (piece == 0) {
    const auto fixed = ram.pool().bytes(load.reservation.fixed);
    TRY_OK(disk.read_fixed(id, fixed));
    return check_parts(ram.identity(), fixed, load.manifest.part_checksums);
  }
  const PageToCopy& page = load.reservation.pages[piece - 1];
  const auto into = ram.pool().bytes(page.extent);
  if (page.page_index == load.manifest.page_keys.size()) return disk.read_tail(id, into);
  return disk.read_page(id, page.page_index, into);
}

Result<SnapshotInfo> end_load(SnapshotStore& ram, const DiskLoad& load, Status pieces) {
  if (!pieces.ok()) {
    TRY_OK(ram.abandon(load.reservation.ticket));
    return Failure(std::move(pieces));
  }
  CopyChecksums checksums{.parts = load.manifest.part_checksums, .pages = {}};
  for (const PageToCopy& page : load.reservation.pages) {
    const bool is_tail = page.page_index == load.manifest.page_keys.size();
    checksums.pages.push_back(is_tail ? load.manifest.tail_checksum
                                      : load.manifest.page_checksums[page.page_index]);
  }
  TRY(const SnapshotInfo info, ram.commit(load.reservation.ticket, checksums));
  TRY_OK(ram.set_elsewhere(info.id, true));
  return *ram.info(info.id);
}

Result<SnapshotInfo> load_snapshot(DiskTier& disk, SnapshotStore& ram, const SnapshotId& id, uint64_t owner) {
  TRY(Manifest manifest, disk.manifest(id));
  TRY(const DiskLoad load, begin_load(std::move(manifest), ram, owner));
  Status status;
  for (uint32_t piece = 0; piece < load.pieces() && status.ok(); ++piece)
    status = load_piece(disk, ram, load, piece);
  return end_load(ram, load, std::move(status));
}

}  // namespace strata::snapshot
