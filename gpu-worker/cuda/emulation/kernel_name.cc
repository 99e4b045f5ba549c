#include "gpu-worker/cuda/emulation/kernel_name.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

namespace strata::gpu_worker::cuda::emulation {
namespace {

// Kernels are mostly local symbols, which the dynamic symbol table (dladdr) does not have.
std::string symbol_at(const std::vector<char>& file, uint64_t address) {
  Elf64_Ehdr header;
  if (file.size() < sizeof(header)) return {};
  std::memcpy(&header, file.data(), sizeof(header));
  if (header.e_shoff + uint64_t{header.e_shnum} * sizeof(Elf64_Shdr) > file.size()) return {};
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), file.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& table : sections) {
    if (table.sh_type != SHT_SYMTAB) continue;
    const Elf64_Shdr& names = sections.at(table.sh_link);
    for (uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, file.data() + table.sh_offset + i * sizeof(symbol), sizeof(symbol));
      if (symbol.st_value == address && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
        return file.data() + names.sh_offset + symbol.st_name;
      }
    }
  }
  return {};
}

}  // namespace

std::string kernel_name(void (*kernel)()) {
  Dl_info info = {};
  const auto address = reinterpret_cast<uintptr_t>(kernel);
  if (kernel == nullptr || dladdr(reinterpret_cast<void*>(address), &info) == 0) return "(none)";
  std::ifstream stream(info.dli_fname, std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto base = reinterpret_cast<uintptr_t>(info.dli_fbase);
  std::string name = symbol_at(file, address - base);  // position-independent
  if (name.empty()) name = symbol_at(file, address);
  if (name.empty()) return fmt::format("at {:#x}", address - base);
  int failed = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &failed), std::free);
  return failed == 0 ? plain.get() : name;
}

}  // namespace strata::gpu_worker::cuda::emulation
