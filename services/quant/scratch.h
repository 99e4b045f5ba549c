#pragma once
// Working memory of the calling thread.

#include <cstddef>

namespace strata::quant {

// At least `bytes` bytes, aligned to a cache line, until the thread's next call. Grows on demand and is kept,
// so that a thread that repeats its work stops allocating.
void* activation_scratch(std::size_t bytes);

}  // namespace strata::quant
