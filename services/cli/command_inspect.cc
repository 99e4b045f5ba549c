#include "services/cli/commands.h"
#include "services/cli/placement.h"
#include "services/gguf/describe.h"

namespace strata::cli {

int run_inspect(const InspectOptions& options) {
  auto file = gguf::GgufFile::open(options.path);
  if (!file) return report(file.error(), kExitFault);
  // A file of another architecture is still worth looking at; only its placement is not known.
  auto weights = model::load_model(*file);
  if (options.json) {
    std::string text = gguf::describe_json(*file);
    std::string placement = weights ? placement_json(place(*weights)) : "null";
    text.insert(text.rfind('}'), fmt::format(",\"placement\":{}", placement));
    fmt::print("{}\n", text);
    return 0;
  }
  fmt::print("{}", gguf::describe_text(*file, options.tensors));
  fmt::print("{}", weights ? placement_text(place(*weights))
                           : fmt::format("\nNot runnable here: {}\n", weights.error().message()));
  return 0;
}

}  // namespace strata::cli
