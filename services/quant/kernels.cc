#include "services/quant/kernels.h"

#include <cstdlib>
#include <iterator>
#include <vector>

#include "services/base/check.h"
#include "services/quant/variant.h"

#ifdef STRATA_KERNELS_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
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

// Ice Lake, Sapphire Rapids, Zen 4 and later; the first CPUs with AVX-512 lack some and take avx2.
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("gfni");
}

// AMX with int8: leaf 7, bits 24 and 25 of EDX. Its registers are so large that a process must ask for them.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTileAndInt8 = 1u << 24 | 1u << 25;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTileAndInt8) == kTileAndInt8 &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#endif

// Slowest first.
struct Variant {
  std::string_view name;
  bool (*runs)();
  const TypeTable* types;
  const FloatKernels* floats;
  const ProductTable* products = nullptr;  // of quantized types, instead of those of `types`
};
constexpr Variant kVariants[] = {
    {"scalar", everywhere, &scalar::kTypes, &scalar::kFloats},
#ifdef STRATA_KERNELS_X86
    {"avx2", has_avx2, &avx2::kTypes, &avx2::kFloats, &avx2_lanes::kProducts},
    {"avx2_vnni", has_avx2_vnni, &avx2::kTypes, &avx2::kFloats, &avx2_vnni::kProducts},
    {"avx512", has_avx512, &avx512::kTypes, &avx512::kFloats, &avx512_lanes::kProducts},
    {"amx", has_amx, &avx512::kTypes, &avx512::kFloats, &amx::kProducts},
#endif
};

TypeTable table_of(const Variant& variant) {
  TypeTable table = *variant.types;
  for (uint32_t id = 0; variant.products != nullptr && id < kTensorTypeIds; ++id) {
    if ((*variant.products)[id] != nullptr) table[id].product_q8 = (*variant.products)[id];
  }
  return table;
}

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
  static TypeTable tables[std::size(kVariants)];
  static const std::vector<Kernels> runnable = [] {
    std::vector<Kernels> found;
    for (const Variant& variant : kVariants) {
      if (!variant.runs()) continue;
      TypeTable& table = tables[found.size()] = table_of(variant);
      found.push_back({variant.name, &table, variant.floats});
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
