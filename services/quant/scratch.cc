#include "services/quant/scratch.h"

#include <cstdint>
#include <vector>

namespace strata::quant {
namespace {

struct alignas(64) CacheLine {
  unsigned char byte[64];
};

}  // namespace

ActivationScratch activation_scratch(std::size_t bytes, const PreparedRow& row) {
  thread_local std::vector<CacheLine> memory;
  thread_local PreparedRow held;
  const std::size_t lines = (bytes + sizeof(CacheLine) - 1) / sizeof(CacheLine);
  if (memory.size() < lines) memory.resize(lines);
  const bool prepared = row.version != 0 && row == held;
  held = row;
  return {memory.data(), prepared};
}

}  // namespace strata::quant
