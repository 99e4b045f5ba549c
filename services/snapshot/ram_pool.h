#pragma once
// The memory that parked conversations lie in: one shared-memory segment, created by the store's owner,
// attached by whoever copies states in and out.
//
// The segment's length is twice the budget, but only what is reserved has memory behind it: reserve() takes
// the pages of its extents, give_back() returns them to the system. So the memory used is the sum of the
// extents, whatever the holes between them, and a budget is never exceeded because of fragmentation.
// Everything is counted before it is taken.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/shm/segment.h"
#include "services/snapshot/extent_map.h"
#include "services/sys/process.h"

namespace strata::snapshot {

inline constexpr uint32_t kRamPoolLayoutVersion = 1;
inline constexpr uint64_t kExtentUnitBytes = 4096;  // a page of memory, and what DMA wants things aligned to

// A piece of the segment. Travels to the copier, so it holds no pointer.
struct Extent {
  uint64_t offset = 0;  // from the beginning of the segment; a multiple of kExtentUnitBytes
  uint64_t bytes = 0;   // as asked for; the memory taken is this, rounded up to whole units
  friend bool operator==(const Extent&, const Extent&) = default;
};

constexpr uint64_t extent_footprint(uint64_t bytes) {
  return (bytes + kExtentUnitBytes - 1) / kExtentUnitBytes * kExtentUnitBytes;
}

struct RamPoolOptions {
  std::string name;           // of the segment (shm::segment_name)
  uint64_t budget_bytes = 0;  // rounded down to whole units; 0: nothing can be reserved
  uint64_t floor_bytes =
      0;  // memory that must stay available to everybody else on the machine or in the container
  std::function<uint64_t()> available_bytes;  // sys::available_memory_bytes, which sees control groups
};

class RamPool {
 public:
  // Errors as Segment::create; kInvalidArgument: a budget whose double no segment can have;
  // kResourceExhausted: more than /dev/shm has free, with both numbers.
  static Result<RamPool> create(const RamPoolOptions& options);

  // One extent per size, all or none; zero-filled memory, taken now. Sizes of 0 are a bug. Errors:
  // kOutOfRange (more than the whole budget: will never fit), kResourceExhausted (more than room(), no hole
  // long enough, or /dev/shm is full; the message has the numbers).
  Result<std::vector<Extent>> reserve(std::span<const uint64_t> sizes);
  // Returns the memory to the system at once. The extent must come from reserve() and be unused.
  void give_back(const Extent& extent);

  std::span<std::byte> bytes(const Extent& extent) const;
  // What could be reserved now: the budget's rest, or what the floor leaves if that is less.
  uint64_t room() const;
  // By how much available memory lies under the floor; 0 if it does not.
  uint64_t bytes_under_floor() const;
  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t used_bytes() const { return used_bytes_; }  // footprints of all extents; at most budget_bytes()
  // What the system counts for the segment: used_bytes() and the header's page, unless somebody wrote outside
  // extents.
  uint64_t resident_bytes() const;
  const shm::Segment& segment() const { return segment_; }

 private:
  RamPool(shm::Segment segment, sys::FileDescriptor file, const RamPoolOptions& options);

  shm::Segment segment_;
  sys::FileDescriptor file_;
  uint64_t budget_bytes_;
  uint64_t floor_bytes_;
  std::function<uint64_t()> available_bytes_;
  uint64_t used_bytes_ = 0;
  ExtentMap extents_;
};

// The same segment in another process.
class RamPoolView {
 public:
  // Errors as Segment::attach.
  static Result<RamPoolView> attach(const std::string& name, uint64_t bytes, uint64_t instance_id);
  // kOutOfRange: not within the segment (extents come over a wire).
  Result<std::span<std::byte>> bytes(const Extent& extent) const;

 private:
  shm::Segment segment_;
};

}  // namespace strata::snapshot
