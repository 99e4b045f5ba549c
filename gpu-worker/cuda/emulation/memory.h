#pragma once
// Device and page-locked host memory. Each allocation is a mapping of its own that ends at a page without
// access, so that a kernel that runs past the end faults; AddressSanitizer is told about the rest of the last
// 256 bytes. New memory is full of NaNs.

#include <cstddef>
#include <map>
#include <mutex>

namespace strata::gpu_worker::cuda::emulation {

enum class Place { kDevice, kHost, kRegistered, kImported };

struct Allocation {
  Place place = Place::kDevice;
  std::size_t bytes = 0;
  std::byte* mapping = nullptr;  // nullptr for registered memory
  std::size_t mapping_bytes = 0;
  int fd = -1;  // once another process may map it
};

class Memory {
 public:
  std::byte* allocate(std::size_t bytes, Place place);  // nullptr: no room
  bool free(void* pointer, Place place);
  bool add_registered(void* pointer, std::size_t bytes);
  std::byte* import(int fd, std::size_t offset, std::size_t bytes);
  // Turns the pages into a memfd's, in place.
  bool share(void* pointer, Allocation& shared);
  // The allocation that holds `pointer`, and where it begins.
  bool find(const void* pointer, Allocation& found, const std::byte*& begin) const;

  std::size_t total() const;
  void set_total(std::size_t bytes);
  std::size_t free_bytes() const;

 private:
  using Allocations = std::map<const std::byte*, Allocation>;
  Allocations::const_iterator holding(const void* pointer) const;

  mutable std::mutex mutex_;
  Allocations allocations_;
  std::size_t total_ = std::size_t{8} << 30;
  std::size_t used_ = 0;
};

Memory& memory();

}  // namespace strata::gpu_worker::cuda::emulation
