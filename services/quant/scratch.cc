#include "services/quant/scratch.h"

#include <cstdint>
#include <vector>

namespace strata::quant {
namespace {

struct alignas(64) CacheLine {
  unsigned char byte[64];
};

}  // namespace

void* activation_scratch(std::size_t bytes) {
  thread_local std::vector<CacheLine> memory;
  const std::size_t lines = (bytes + sizeof(CacheLine) - 1) / sizeof(CacheLine);
  if (memory.size() < lines) memory.resize(lines);
  return memory.data();
}

}  // namespace strata::quant
