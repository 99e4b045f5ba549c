#include "services/gguf/allocation_watch.h"

#include <cstdlib>
#include <new>

namespace strata::gguf {

std::atomic<std::size_t>& largest_allocation() {
  static std::atomic<std::size_t> largest{0};
  return largest;
}

}  // namespace strata::gguf

void* operator new(std::size_t size) {
  auto& largest = strata::gguf::largest_allocation();
  std::size_t seen = largest.load();
  while (seen < size && !largest.compare_exchange_weak(seen, size)) {
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
