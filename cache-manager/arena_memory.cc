#include "cache-manager/arena_memory.h"

#include <cstring>
#include <utility>

#include "services/base/check.h"

namespace strata::cache_manager {
namespace {

class SegmentArena final : public ArenaMemory {
 public:
  explicit SegmentArena(shm::Segment segment) : segment_(std::move(segment)) {}
  Status write(uint64_t offset, std::span<const std::byte> bytes) override {
    CHECK(shm::kArenaSlotsOffset + offset + bytes.size() <= segment_.bytes(),
          "{} bytes at {} of an arena of {}", bytes.size(), offset, segment_.bytes());
    std::memcpy(shm::arena_slots(segment_) + offset, bytes.data(), bytes.size());
    return {};
  }
  Status finish() override { return {}; }

 private:
  shm::Segment segment_;
};

}  // namespace

std::unique_ptr<ArenaMemory> segment_arena(shm::Segment segment) {
  return std::make_unique<SegmentArena>(std::move(segment));
}

}  // namespace strata::cache_manager
