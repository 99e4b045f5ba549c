#pragma once
#include <string>

namespace strata::gpu_worker::cuda::emulation {

// The name of a function of this program, from its symbol table; its address where that was stripped.
std::string kernel_name(void (*kernel)());

}  // namespace strata::gpu_worker::cuda::emulation
