#pragma once
// Working memory of the calling thread.

#include <cstddef>
#include <cstdint>

namespace strata::quant {

// What a kernel makes of one row of activations before it uses it.
struct PreparedRow {
  uint64_t version = 0;        // of the activations (ProductArgs); 0: made anew for every product
  const void* row = nullptr;   // which of them
  const void* form = nullptr;  // in what form: an address of the kernel's own
  bool operator==(const PreparedRow&) const = default;
};
struct ActivationScratch {
  void* memory;   // aligned to a cache line
  bool prepared;  // it holds what is asked for: the thread's last call was for the same
};

// At least `bytes` bytes until the thread's next call, in which the caller prepares `row` unless it is there.
// Grows on demand and is kept, so that a thread that repeats its work stops allocating.
ActivationScratch activation_scratch(std::size_t bytes, const PreparedRow& row);

}  // namespace strata::quant
