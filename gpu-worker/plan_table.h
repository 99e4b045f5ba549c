#pragma once
// A memory plan as people read it: the log at start, and `strata plan`.

#include <cstdint>
#include <string>
#include <vector>

namespace strata::gpu_worker {

struct MemoryPlan;

std::string bytes_text(uint64_t bytes);  // "512 B", "3.4 KiB", "12.3 MiB", "7.12 GiB"

// Lines of a table with what each part takes and what for, the sums, and what is left:
//   device memory      size  what for
//   in use           0.50 GiB  other programs, the driver
//   ...
std::vector<std::string> plan_table(const MemoryPlan& plan);

}  // namespace strata::gpu_worker
