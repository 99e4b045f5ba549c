#pragma once
// How many files, sockets included, this process may have open at the same time.

#include <cstdint>

namespace strata::sys {

// Raises the limit to what the process may take without privileges (the hard limit) and returns it. The soft
// limit is 1,024 nearly everywhere, for the sake of programs that use select(); none of ours does.
uint64_t raise_file_limit();

}  // namespace strata::sys
