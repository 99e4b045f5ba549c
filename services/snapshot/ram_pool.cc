#include "services/snapshot/ram_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "services/base/check.h"
#include "services/sys/errno_status.h"

namespace strata::snapshot {
namespace {

// Address space costs nothing; twice the budget leaves a hole for the longest extent however the others lie,
// in practice.
constexpr uint64_t kSpacePerBudget = 2;

uint64_t segment_bytes(uint64_t budget_bytes) { return kExtentUnitBytes + kSpacePerBudget * budget_bytes; }

int change_pages(int fd, int mode, const Extent& extent) {
  const auto offset = static_cast<off_t>(extent.offset);
  const auto length = static_cast<off_t>(extent_footprint(extent.bytes));
  int result = 0;
  do {
    result = fallocate(fd, mode | FALLOC_FL_KEEP_SIZE, offset, length);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

Result<RamPool> RamPool::create(const RamPoolOptions& options) {
  constexpr uint64_t kBudgetMax = uint64_t{1} << 46;
  if (options.budget_bytes > kBudgetMax) {
    return fail(Code::kInvalidArgument, "a budget of {} bytes for snapshots: at most {} are possible",
                options.budget_bytes, kBudgetMax);
  }
  const uint64_t budget = options.budget_bytes / kExtentUnitBytes * kExtentUnitBytes;
  TRY(shm::Segment segment,
      shm::Segment::create(options.name, shm::SegmentKind::kSnapshots, kRamPoolLayoutVersion,
                           segment_bytes(budget), shm::SegmentPages::kOnDemand));
  sys::FileDescriptor file(shm_open(options.name.c_str(), O_RDWR, 0));
  struct statvfs room{};
  if (!file.valid() || fstatvfs(file.get(), &room) != 0) {
    return fail(sys::errno_code(errno), "shared memory {}: {}", options.name, std::strerror(errno));
  }
  // Said now: later it would look as if snapshots vanished for no reason. No blocks: a file system without a
  // limit.
  const uint64_t free_bytes = uint64_t{room.f_bavail} * room.f_frsize;
  if (room.f_blocks > 0 && budget > free_bytes) {
    return fail(
        Code::kResourceExhausted,
        "a budget of {} bytes for snapshots, /dev/shm has {} free; lower it or enlarge /dev/shm (docker: "
        "--shm-size)",
        budget, free_bytes);
  }
  return RamPool(std::move(segment), std::move(file), options);
}

RamPool::RamPool(shm::Segment segment, sys::FileDescriptor file, const RamPoolOptions& options)
    : segment_(std::move(segment)),
      file_(std::move(file)),
      budget_bytes_(options.budget_bytes / kExtentUnitBytes * kExtentUnitBytes),
      floor_bytes_(options.floor_bytes),
      available_bytes_(options.available_bytes),
      extents_(1, kSpacePerBudget * budget_bytes_ / kExtentUnitBytes) {
  CHECK(available_bytes_ != nullptr);
}

Result<std::vector<Extent>> RamPool::reserve(std::span<const uint64_t> sizes) {
  uint64_t needed = 0;
  for (uint64_t size : sizes) {
    CHECK(size > 0);
    if (size > budget_bytes_ || needed > budget_bytes_) break;  // no sum of sizes may wrap
    needed += extent_footprint(size);
  }
  const bool fits = needed <= budget_bytes_ && std::all_of(sizes.begin(), sizes.end(), [&](uint64_t size) {
                      return size <= budget_bytes_;
                    });
  if (!fits) {
    return fail(Code::kOutOfRange, "needs more than the whole budget of {} bytes for snapshots in RAM",
                budget_bytes_);
  }
  const uint64_t room_bytes = room();
  if (needed > room_bytes) {
    return fail(Code::kResourceExhausted,
                "needs {} bytes of RAM for snapshots; {} of the budget's {} are used, and {} lie above the "
                "floor of free memory",
                needed, used_bytes_, budget_bytes_, room_bytes);
  }
  std::vector<Extent> taken;
  taken.reserve(sizes.size());
  const auto undo = [&] {
    for (const Extent& extent : taken) give_back(extent);
  };
  for (uint64_t size : sizes) {
    const uint64_t units = extent_footprint(size) / kExtentUnitBytes;
    const auto first = extents_.take(units);
    if (!first) {
      const uint64_t longest = extents_.longest_free() * kExtentUnitBytes;
      undo();
      return fail(Code::kResourceExhausted, "needs {} bytes in one piece, the longest hole has {}", size,
                  longest);
    }
    const Extent extent{.offset = *first * kExtentUnitBytes, .bytes = size};
    if (const int error = change_pages(file_.get(), 0, extent); error != 0) {
      extents_.give(*first, units);
      undo();
      return fail(sys::errno_code(error), "shared memory {}: {} bytes more: {} (docker: --shm-size)",
                  segment_.name(), size, std::strerror(error));
    }
    used_bytes_ += extent_footprint(size);
    taken.push_back(extent);
  }
  return taken;
}

void RamPool::give_back(const Extent& extent) {
  const uint64_t footprint = extent_footprint(extent.bytes);
  extents_.give(extent.offset / kExtentUnitBytes, footprint / kExtentUnitBytes);
  const int error = change_pages(file_.get(), FALLOC_FL_PUNCH_HOLE, extent);
  CHECK(error == 0, "{} bytes at {} of {}: {}", extent.bytes, extent.offset, segment_.name(),
        std::strerror(error));
  used_bytes_ -= footprint;
}

std::span<std::byte> RamPool::bytes(const Extent& extent) const {
  return {segment_.data() + extent.offset, extent.bytes};
}

uint64_t RamPool::room() const {
  const uint64_t available = available_bytes_();
  const uint64_t above_floor = available > floor_bytes_ ? available - floor_bytes_ : 0;
  return std::min(budget_bytes_ - used_bytes_, above_floor);
}

uint64_t RamPool::bytes_under_floor() const {
  const uint64_t available = available_bytes_();
  return available < floor_bytes_ ? floor_bytes_ - available : 0;
}

uint64_t RamPool::resident_bytes() const {
  constexpr uint64_t kBlockBytes = 512;  // what st_blocks counts in
  struct stat info{};
  return fstat(file_.get(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * kBlockBytes : 0;
}

Result<RamPoolView> RamPoolView::attach(const std::string& name, uint64_t bytes, uint64_t instance_id) {
  RamPoolView view;
  TRY(view.segment_,
      shm::Segment::attach(name, shm::SegmentKind::kSnapshots, kRamPoolLayoutVersion, bytes, instance_id));
  return view;
}

Result<std::span<std::byte>> RamPoolView::bytes(const Extent& extent) const {
  if (extent.offset < kExtentUnitBytes || extent.offset > segment_.bytes() ||
      extent.bytes > segment_.bytes() - extent.offset) {
    return fail(Code::kOutOfRange, "shared memory {}: {} bytes at {} are not within its {}", segment_.name(),
                extent.bytes, extent.offset, segment_.bytes());
  }
  return std::span<std::byte>(segment_.data() + extent.offset, extent.bytes);
}

}  // namespace strata::snapshot
