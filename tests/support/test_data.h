#pragma once
// Where golden data is: the folder named by an environment variable, else the copy that the build unpacked.

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace strata::tests {

inline std::filesystem::path golden_folder(const char* variable, const char* name) {
  if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') return value;
  return std::filesystem::path(STRATA_TEST_DATA_DIR) / name;
}

// qwen4exp-tiny: index.json, *.gguf, CASE.*.bin
inline std::filesystem::path tiny_folder() { return golden_folder("STRATA_GOLDEN_TINY", "qwen4exp-tiny"); }
// The folder that holds gguf-good and gguf-bad.
inline std::filesystem::path gguf_folder() { return golden_folder("STRATA_GOLDEN_GGUF", "."); }
// quants: index.json, TYPE.*.bin
inline std::filesystem::path quants_folder() { return golden_folder("STRATA_GOLDEN_QUANTS", "quants"); }
// experts: index.json, matrices, inputs and float64 results of whole experts
inline std::filesystem::path experts_folder() { return golden_folder("STRATA_GOLDEN_EXPERTS", "experts"); }
// The demo model's goldens: index.json, NAME.*.bin. Accepts the models folder itself, too.
inline std::filesystem::path models_golden_folder() {
  auto folder = golden_folder("STRATA_GOLDEN_MODELS", "models-golden");
  return std::filesystem::exists(folder / "index.json") ? folder : folder / "golden";
}
// The model that those goldens are of: beside them, or the one in the repository.
inline std::filesystem::path models_golden_model() {
  auto folder = models_golden_folder();
  for (const auto& candidate : {folder / "strata-demo.gguf", folder.parent_path() / "strata-demo.gguf"}) {
    if (std::filesystem::exists(candidate)) return candidate;
  }
  return std::filesystem::path(STRATA_SOURCE_DIR) / "models" / "strata-demo.gguf";
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

template <class T>
std::vector<T> read_array(const std::filesystem::path& path) {
  std::string bytes = read_text(path);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace strata::tests
