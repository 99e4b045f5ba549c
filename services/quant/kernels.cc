#include "services/quant/kernels.h"

#include <cstdlib>
#include <vector>

#include "services/base/check.h"
#include "services/quant/variant.h"

#ifdef STRATA_KERNELS_X86
#include <cpuid.h>
#endif

namespace strata::quant {
namespace {

bool everywhere() { return true; }

#ifdef STRATA_KERNELS_X86
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

// The compilers differ in whether __builtin_cpu_supports knows it: leaf 7, subleaf 1, bit 4 of EAX.
bool has_avx2_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}
#endif

// Slowest first.
struct Variant {
  Kernels kernels;
  bool (*runs)();
};
constexpr Variant kVariants[] = {
    {{"scalar", &scalar::kTypes, &scalar::kFloats}, everywhere},
#ifdef STRATA_KERNELS_X86
    {{"avx2", &avx2::kTypes, &avx2::kFloats}, has_avx2},
    {{"avx2_vnni", &avx2_vnni::kTypes, &avx2::kFloats}, has_avx2_vnni},
#endif
};

const Kernels& choose() {
  const auto available = available_kernels();
  const char* wanted = std::getenv("STRATA_CPU_KERNELS");
  if (wanted == nullptr || *wanted == '\0') return available.back();
  for (const Kernels& candidate : available) {
    if (candidate.name == wanted) return candidate;
  }
  check_failed("STRATA_CPU_KERNELS", fmt::format("this CPU and build have no kernels named {}", wanted),
               std::source_location::current());
}

}  // namespace

std::span<const Kernels> available_kernels() {
  static const std::vector<Kernels> runnable = [] {
    std::vector<Kernels> found;
    for (const Variant& variant : kVariants) {
      if (variant.runs()) found.push_back(variant.kernels);
    }
    return found;
  }();
  return runnable;
}

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace strata::quant
