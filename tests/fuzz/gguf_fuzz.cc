// Any bytes: parse, and when they are taken for a model, everything that reads one.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "services/gguf/describe.h"
#include "services/gguf/gguf_file.h"

namespace {

using strata::gguf::GgufFile;

// Each accessor on each key: one of them fits, the others have an error to write.
std::size_t read_all(const GgufFile& file) {
  std::size_t work = 0;
  for (const auto& pair : file.metadata()) {
    work += file.get_uint(pair.key).has_value();
    work += file.get_int(pair.key).has_value();
    work += file.get_float(pair.key).has_value();
    work += file.get_bool_or(pair.key, false).has_value();
    work += file.get_string(pair.key).has_value();
    work += file.get_int_array(pair.key).has_value();
    work += file.get_uint_array(pair.key).has_value();
    work += file.get_bool_array(pair.key).has_value();
    work += file.get_string_array(pair.key).has_value();
    if (file.find(pair.key) != &pair.value) std::abort();
  }
  for (const auto& tensor : file.tensors()) {
    if (file.find_tensor(tensor.name) != &tensor) std::abort();
    for (const std::byte byte : tensor.data) work += static_cast<std::size_t>(byte);
  }
  return work + describe_text(file, true).size() + describe_json(file).size();
}

volatile std::size_t sink;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = GgufFile::parse(bytes, "fuzz.gguf", {.check_values = true});
  if (file.has_value()) {
    sink = read_all(*file);
  } else if (file.error().message().find("fuzz.gguf") == std::string::npos) {
    std::abort();  // every error names the file
  }
  return 0;
}
