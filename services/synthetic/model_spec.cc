#include "services/synthetic/model_spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "services/synthetic/encoder.h"

namespace strata::synthetic {
namespace {

constexpr uint32_t kSmallTableRows = 20000;

struct Preset {
  std::string_view name, what;
  uint32_t full_table_rows;  // per n-gram head
  ModelShape shape;
  ModelTypes types;
};

const std::array<Preset, 2>& presets() {
  static const std::array<Preset, 2> list = {
      {{.name = "qwen3.8-flash-next",
        .what = "48 layers of 512 experts, hidden 2560: 39 GB with experts in Q2_0 (the default)",
        .full_table_rows = 20000000,
        .shape = {.layers = 48,
                  .attention_interval = 4,
                  .hidden = 2560,
                  .streams = 4,
                  .mixer_rank = 320,
                  .vocabulary = 248320,
                  .context = 262144,
                  .experts = 512,
                  .experts_used = 10,
                  .expert_width = 640,
                  .shared_width = 640,
                  .heads = 24,
                  .kv_heads = 2,
                  .head_dim = 256,
                  .indexer_heads = 4,
                  .indexer_dim = 128,
                  .indexer_top_k = 2048,
                  .block_tokens = 4,
                  .rope_sections = {11, 11, 10, 0},
                  .rope_base = 1e7f,
                  .value_heads = 48,
                  .key_heads = 16,
                  .state_dim = 128,
                  .ngram_size = 3,
                  .ngram_heads = 8,
                  .table_rows = kSmallTableRows},
        .types = {.gate_up = TensorType::kQ2_0, .down = TensorType::kQ2_0, .table = TensorType::kIQ4_NL}},
       {.name = "demo-shape",
        .what = "8 layers of 64 experts, hidden 256: 28 MB, for tests",
        .full_table_rows = kSmallTableRows,
        .shape = {.layers = 8,
                  .attention_interval = 4,
                  .hidden = 256,
                  .streams = 4,
                  .mixer_rank = 32,
                  .vocabulary = 8192,
                  .context = 8192,
                  .experts = 64,
                  .experts_used = 6,
                  .expert_width = 64,
                  .shared_width = 64,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 64,
                  .indexer_heads = 4,
                  .indexer_dim = 64,
                  .indexer_top_k = 256,
                  .block_tokens = 4,
                  .rope_sections = {6, 5, 5, 0},
                  .rope_base = 1e5f,
                  .value_heads = 8,
                  .key_heads = 4,
                  .state_dim = 32,
                  .ngram_size = 3,
                  .ngram_heads = 4,
                  .table_rows = kSmallTableRows},
        .types = {.gate_up = TensorType::kQ4_K, .down = TensorType::kIQ4_NL, .table = TensorType::kIQ4_NL}}}};
  return list;
}

template <class Number>
Status read_number(std::string_view key, std::string_view text, Number least, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= least) return {};
  return fail(Code::kInvalidArgument, "{}={}: expected a number of at least {}", key, text, least);
}

Status read_expert_types(std::string_view text, ModelTypes& types) {
  const std::size_t slash = text.find('/');
  TRY(types.gate_up, weight_type(text.substr(0, slash)));
  types.down = types.gate_up;
  if (slash == std::string_view::npos) return {};
  TRY(types.down, weight_type(text.substr(slash + 1)));
  return {};
}

Status read_part(std::string_view part, const Preset& preset, ModelRequest& request) {
  const std::size_t equals = part.find('=');
  const std::string_view key = part.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : part.substr(equals + 1);
  if (key == "layers") return read_number(key, value, uint32_t{1}, request.shape.layers);
  if (key == "experts") return read_number(key, value, request.shape.experts_used, request.shape.experts);
  if (key == "seed") return read_number(key, value, uint64_t{0}, request.seed);
  if (key == "types") return read_expert_types(value, request.types);
  if (key == "dense") {
    TRY(request.types.dense, weight_type(value));
    request.types.embedding = request.types.head = request.types.dense;
    return {};
  }
  if (key == "ngram" && (value == "small" || value == "full")) {
    request.shape.table_rows = value == "full" ? preset.full_table_rows : kSmallTableRows;
    return {};
  }
  return fail(Code::kInvalidArgument,
              "'{}': expected layers=N, experts=N, types=TYPE, types=GATE_UP/DOWN, dense=TYPE, "
              "ngram=small, ngram=full or seed=N",
              part);
}

}  // namespace

Result<ModelRequest> parse_model_spec(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  const auto preset = std::ranges::find(presets(), name, &Preset::name);
  if (preset == presets().end())
    return fail(Code::kInvalidArgument, "there is no synthetic model '{}'; there are:\n{}", name,
                preset_list());
  ModelRequest request{.shape = preset->shape,
                       .types = preset->types,
                       .seed = 1,
                       .name = fmt::format("SYNTHETIC {}", text),
                       .made_of = fmt::format("random weights: {}", text)};
  for (std::size_t at = name.size(); at < text.size();) {
    const std::size_t end = std::min(text.find(':', at + 1), text.size());
    TRY_OK(read_part(text.substr(at + 1, end - at - 1), *preset, request));
    at = end;
  }
  return request;
}

std::string preset_list() {
  std::string out;
  for (const Preset& preset : presets()) out += fmt::format("  {:20} {}\n", preset.name, preset.what);
  return out;
}

Result<TensorType> weight_type(std::string_view name) {
  for (const Encoder& encoder : encoders())
    if (name == gguf::tensor_type_info(encoder.type).name) return encoder.type;
  return fail(Code::kInvalidArgument, "no weights of a type '{}'; there are {}", name, weight_type_names());
}

std::string weight_type_names() {
  std::vector<std::string_view> names;
  for (const Encoder& encoder : encoders()) names.push_back(gguf::tensor_type_info(encoder.type).name);
  return fmt::format("{}", fmt::join(names, " "));
}

}  // namespace strata::synthetic
