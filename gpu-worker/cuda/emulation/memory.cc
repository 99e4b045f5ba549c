#include "gpu-worker/cuda/emulation/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "gpu-worker/cuda/emulation/stream.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace strata::gpu_worker::cuda::emulation {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;  // of cudaMalloc
// Filling more than this with NaNs would take longer than most tests.
constexpr std::size_t kFilledBytes = std::size_t{64} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void set_slack_access([[maybe_unused]] std::byte* end, [[maybe_unused]] std::size_t bytes,
                      [[maybe_unused]] bool allowed) {
#ifdef __SANITIZE_ADDRESS__
  if (allowed) {
    ASAN_UNPOISON_MEMORY_REGION(end, bytes);
  } else {
    ASAN_POISON_MEMORY_REGION(end, bytes);
  }
#endif
}

}  // namespace

Memory& memory() {
  static auto& memory = *new Memory;
  return memory;
}

std::byte* Memory::allocate(std::size_t bytes, Place place) {
  std::lock_guard lock(mutex_);
  const std::size_t aligned = round_up(bytes, kAlignment);
  if (place == Place::kDevice && (bytes > total_ || aligned > total_ - used_)) return nullptr;
  const std::size_t pages = round_up(aligned, kPage);
  void* mapping = mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* base = static_cast<std::byte*>(mapping);
  mprotect(base + pages, kPage, PROT_NONE);
  std::byte* begin = base + (pages - aligned);
  if (bytes <= kFilledBytes) std::memset(begin, 0xff, bytes);
  set_slack_access(begin + bytes, aligned - bytes, false);
  if (place == Place::kDevice) used_ += aligned;
  allocations_[begin] = {place, bytes, base, pages + kPage, -1};
  return begin;
}

bool Memory::free(void* pointer, Place place) {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(static_cast<std::byte*>(pointer));
  if (found == allocations_.end() || found->second.place != place) return false;
  const Allocation& allocation = found->second;
  const std::size_t aligned = round_up(allocation.bytes, kAlignment);
  if (place == Place::kDevice) used_ -= aligned;
  if (place != Place::kRegistered) {
    set_slack_access(static_cast<std::byte*>(pointer) + allocation.bytes, aligned - allocation.bytes, true);
    munmap(allocation.mapping, allocation.mapping_bytes);
    if (allocation.fd >= 0) close(allocation.fd);
  }
  allocations_.erase(found);
  return true;
}

bool Memory::add_registered(void* pointer, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  return allocations_
      .try_emplace(static_cast<std::byte*>(pointer), Allocation{Place::kRegistered, bytes, nullptr, 0, -1})
      .second;
}

bool Memory::share(void* pointer, Allocation& shared) {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(static_cast<std::byte*>(pointer));
  if (found == allocations_.end() || found->second.place != Place::kDevice) return false;
  Allocation& allocation = found->second;
  if (allocation.fd < 0) {
    const std::size_t pages = allocation.mapping_bytes - kPage;
    const int fd = memfd_create("strata-emulated-memory", MFD_CLOEXEC);
    if (fd < 0) return false;
    auto* begin = static_cast<std::byte*>(pointer);
    const auto offset = static_cast<off_t>(begin - allocation.mapping);
    const bool copied = ftruncate(fd, static_cast<off_t>(pages)) == 0 &&
                        pwrite(fd, begin, allocation.bytes, offset) == static_cast<ssize_t>(allocation.bytes);
    if (!copied || mmap(allocation.mapping, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
                       MAP_FAILED) {
      close(fd);
      return false;
    }
    allocation.fd = fd;
  }
  shared = allocation;
  return true;
}

std::byte* Memory::import(int fd, std::size_t offset, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  const std::size_t pages = round_up(offset + bytes, kPage);
  void* mapping = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* base = static_cast<std::byte*>(mapping);
  allocations_[base + offset] = {Place::kImported, bytes, base, pages, -1};
  return base + offset;
}

Memory::Allocations::const_iterator Memory::holding(const void* pointer) const {
  auto next = allocations_.upper_bound(static_cast<const std::byte*>(pointer));
  if (next == allocations_.begin()) return allocations_.end();
  --next;
  const std::byte* end = next->first + next->second.bytes;
  return static_cast<const std::byte*>(pointer) < end ? next : allocations_.end();
}

bool Memory::find(const void* pointer, Allocation& found, const std::byte*& begin) const {
  std::lock_guard lock(mutex_);
  const auto holder = holding(pointer);
  if (holder == allocations_.end()) return false;
  begin = holder->first;
  found = holder->second;
  return true;
}

std::size_t Memory::total() const {
  std::lock_guard lock(mutex_);
  return total_;
}
void Memory::set_total(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  total_ = bytes;
}
std::size_t Memory::free_bytes() const {
  std::lock_guard lock(mutex_);
  return total_ > used_ ? total_ - used_ : 0;
}

void set_memory_bytes(std::size_t bytes) { memory().set_total(bytes); }

}  // namespace strata::gpu_worker::cuda::emulation
