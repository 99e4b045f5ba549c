#pragma once
// For tests: how much memory is asked for at once. Linking allocation_watch.cc replaces operator new of the
// program.

#include <atomic>
#include <cstddef>

namespace strata::gguf {

// The largest single allocation since it was last set to 0.
std::atomic<std::size_t>& largest_allocation();

}  // namespace strata::gguf
