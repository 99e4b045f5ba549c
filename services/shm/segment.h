#pragma once
// One POSIX shared-memory segment with a versioned header. The owner creates it (mode 0600) and removes its
// name; others attach by the name, size and instance id that an Attach RPC handed over.
//
// Names: "/strata-<run id>-<what>-<instance hex>", where the run id is a hash of the run directory: whoever
// holds the run directory's lock may remove every stale "/strata-<run id>-*" (remove_stale_segments).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "services/base/limits.h"
#include "services/base/status.h"

namespace strata::shm {

inline constexpr uint64_t kSegmentMagic = 0x314D485341525453;  // "STRASHM1", little-endian

struct alignas(kCacheLine) SegmentHeader {
  uint64_t magic = kSegmentMagic;
  uint32_t kind = 0;            // SegmentKind
  uint32_t layout_version = 0;  // of that kind
  uint64_t instance_id = 0;     // random per creation
  uint64_t bytes = 0;           // whole segment, this header included
  uint32_t owner_pid = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(SegmentHeader) == kCacheLine);

enum class SegmentKind : uint32_t {
  kBoard = 1,
  kArena = 2,
  kResidencyTable = 3,
  kUsageBoard = 4,
  kSnapshots = 5
};

// kReserved: all memory is taken at creation, so that no later write can end in SIGBUS. kOnDemand: only the
// header's page is; the owner takes and returns the rest piece by piece (fallocate).
enum class SegmentPages { kReserved, kOnDemand };

class Segment {
 public:
  // Zero-filled, header written. Errors: kResourceExhausted (/dev/shm too small: the message has both
  // numbers), ...
  static Result<Segment> create(const std::string& name, SegmentKind kind, uint32_t layout_version,
                                uint64_t bytes, SegmentPages pages = SegmentPages::kReserved);
  // kNotFound, kFailedPrecondition (other kind, layout, instance or size than expected).
  static Result<Segment> attach(const std::string& name, SegmentKind kind, uint32_t layout_version,
                                uint64_t bytes, uint64_t instance_id);
  Segment() = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();  // unmaps; the creator also removes the name

  const std::string& name() const { return name_; }
  uint64_t instance_id() const { return header()->instance_id; }
  uint64_t bytes() const { return bytes_; }
  std::byte* data() const { return base_; }
  const SegmentHeader* header() const { return reinterpret_cast<const SegmentHeader*>(base_); }
  bool valid() const { return base_ != nullptr; }
  // Removes the name now, the mapping stays: nobody can attach any more.
  void unlink();

 private:
  std::string name_;
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  bool owner_ = false;
};

// "a1b2c3d4" for a run directory's canonical path.
std::string run_id(const std::string& run_dir);
std::string segment_name(const std::string& run_id, std::string_view what, uint64_t instance);
// Removes /dev/shm/strata-<run id>-*; returns how many. Only for the holder of the run directory's lock.
uint32_t remove_stale_segments(const std::string& run_id);
// Only those whose owner's process is gone; for an owner that starts again while others of the run live.
uint32_t remove_segments_of_dead_owners(const std::string& run_id);
uint64_t random_instance_id();

}  // namespace strata::shm
