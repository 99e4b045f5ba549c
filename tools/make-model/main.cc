// strata-make-model: writes a small model with random weights, for tests and measurements.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "services/synthetic/model_spec.h"
#include "services/synthetic/random_model.h"

namespace strata::synthetic {
namespace {

// An option that takes the name of a type; `use` gets what it stands for.
void add_type(CLI::App& app, const std::string& option, const std::string& help,
              const std::function<void(TensorType)>& use) {
  app.add_option_function<std::string>(
         option,
         [option, use](const std::string& name) {
           const auto type = weight_type(name);
           if (!type) throw CLI::ValidationError(option, type.error().message());
           use(*type);
         },
         help)
      ->type_name("TYPE")
      ->group("Types");
}

void add_types(CLI::App& app, ModelTypes& types) {
  // Options act in this order, whatever that of the command line: roles are set after all of them together.
  add_type(app, "--type", "Of every large matrix; the following are for one role each",
           [&types](TensorType type) {
             types.dense = types.gate_up = types.down = types.embedding = types.table = types.head = type;
           });
  const std::pair<const char*, std::pair<TensorType*, const char*>> roles[] = {
      {"--dense", {&types.dense, "Attention, delta-net, mixers, shared experts, n-gram projections"}},
      {"--gate-up", {&types.gate_up, "Gate and up projections of the experts"}},
      {"--down", {&types.down, "Down projections of the experts"}},
      {"--embedding", {&types.embedding, "Token embedding"}},
      {"--table", {&types.table, "Table of the n-gram embedding"}},
      {"--head", {&types.head, "Output head"}},
      {"--small", {&types.small, "Routers and other matrices of few rows (default: F32; all else Q8_0)"}},
  };
  for (const auto& [option, role] : roles)
    add_type(app, option, role.second, [target = role.first](TensorType type) { *target = type; });
}

void add_shape(CLI::App& app, ModelShape& shape) {
  const std::pair<const char*, std::pair<uint32_t*, const char*>> sizes[] = {
      {"--layers", {&shape.layers, "Layers"}},
      {"--attention-interval", {&shape.attention_interval, "Every so many layers, one has attention"}},
      {"--hidden", {&shape.hidden, "Hidden size, a multiple of 128 (256 for the types with blocks of 256)"}},
      {"--experts", {&shape.experts, "Experts of a layer"}},
      {"--experts-used", {&shape.experts_used, "Experts per token"}},
      {"--expert-width", {&shape.expert_width, "Row length of the down projections"}},
      {"--shared-width", {&shape.shared_width, "Width of the shared expert"}},
      {"--mixer-rank", {&shape.mixer_rank, "Row length of the stream mixers' up matrices"}},
      {"--ngram-size",
       {&shape.ngram_size, "Longest n-gram; a table row has hidden / ((size - 1) * heads) values"}},
      {"--ngram-heads", {&shape.ngram_heads, "Hash functions per n-gram length"}},
      {"--table-rows",
       {&shape.table_rows,
        "Least rows of the n-gram table per hash function: its sizes are the primes from there on"}},
      {"--vocabulary", {&shape.vocabulary, "Tokens; 0: as many as the tokenizer needs"}},
      {"--context", {&shape.context, "Context length that the file names"}},
  };
  for (const auto& [name, size] : sizes)
    app.add_option(name, *size.first, size.second)->capture_default_str()->group("Shape");
}

int run(int argc, char** argv) {
  CLI::App app("Write a small qwen4exp model with random weights in any tensor types");
  app.footer(fmt::format(
      "Types: {}\nExample:\n"
      "  strata-make-model /tmp/small.gguf --type IQ2_XS --down IQ4_NL --expert-width 640 --seed 3",
      weight_type_names()));
  std::string path;
  ModelRequest request;
  app.add_option("file", path, "The GGUF file to write")->required();
  app.add_option("--seed", request.seed, "The same seed and shape give the same weights")
      ->capture_default_str();
  add_types(app, request.types);
  add_shape(app, request.shape);
  CLI11_PARSE(app, argc, argv);

  request.made_of = fmt::format("random weights of strata-make-model, seed {}", request.seed);
  const Result<std::string> bytes = make_model(request);
  if (!bytes) {
    fmt::print(stderr, "strata-make-model: {}\n", bytes.error().message());
    return 2;
  }
  std::ofstream file(path, std::ios::binary);
  if (!file.write(bytes->data(), static_cast<std::streamsize>(bytes->size())).flush()) {
    fmt::print(stderr, "strata-make-model: cannot write {}\n", path);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace strata::synthetic

int main(int argc, char** argv) { return strata::synthetic::run(argc, argv); }
