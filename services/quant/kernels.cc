#include "services/quant/kernels.h"

#include <cstdlib>

#include "services/base/check.h"
#include "services/quant/variant.h"

namespace strata::quant {
namespace {

#ifdef STRATA_KERNELS_AVX2
constexpr Kernels kCompiled[] = {{"scalar", &scalar::kTypes, &scalar::kFloats},
                                 {"avx2", &avx2::kTypes, &avx2::kFloats}};

std::size_t runnable() {
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return avx2 ? 2 : 1;
}
#else
constexpr Kernels kCompiled[] = {{"scalar", &scalar::kTypes, &scalar::kFloats}};

std::size_t runnable() { return 1; }
#endif

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

std::span<const Kernels> available_kernels() { return {kCompiled, runnable()}; }

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace strata::quant
