#include "services/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "services/base/limits.h"

namespace strata::model {
namespace {

constexpr std::string_view kArchitecture = "qwen4exp";
constexpr uint64_t kDefaultInterval = 4;  // of attention layers, where the file names none

std::string key_of(std::string_view name) { return fmt::format("{}.{}", kArchitecture, name); }

// Reads keys of the architecture; every error names file and key.
class Keys {
 public:
  explicit Keys(const gguf::GgufFile& file) : file_(file) {}

  bool has(std::string_view name) const { return file_.find(key_of(name)) != nullptr; }
  const std::string& path() const { return file_.path(); }

  // A size: above zero.
  Result<uint32_t> size(std::string_view name) const {
    TRY(const uint64_t value, file_.get_uint(key_of(name), UINT32_MAX));
    return positive(name, value);
  }

  // One value, or an array of which every non-zero entry must be the same (zeros stand for layers without
  // it).
  Result<uint32_t> size_or_array(std::string_view name) const {
    const gguf::Value* value = file_.find(key_of(name));
    if (value == nullptr || value->type != gguf::ValueType::kArray) return size(name);
    TRY(const auto entries, uints(name, 1));
    uint64_t common = 0;
    for (const uint64_t entry : entries) {
      if (entry == 0 || entry == common) continue;
      if (common != 0) {
        return fail(Code::kUnimplemented, "{}: {} has both {} and {}; layers that differ are not supported",
                    path(), key_of(name), common, entry);
      }
      common = entry;
    }
    if (common > UINT32_MAX)
      return fail(Code::kInvalidArgument, "{}: {} has {}", path(), key_of(name), common);
    return positive(name, common);
  }

  // The largest entry of an array, or the value itself.
  Result<uint32_t> largest(std::string_view name) const {
    const gguf::Value* value = file_.find(key_of(name));
    if (value == nullptr || value->type != gguf::ValueType::kArray) return size(name);
    TRY(const auto entries, uints(name, 1));
    const uint64_t found = *std::max_element(entries.begin(), entries.end());
    if (found > UINT32_MAX) return fail(Code::kInvalidArgument, "{}: {} has {}", path(), key_of(name), found);
    return positive(name, found);
  }

  Result<std::vector<uint64_t>> uints(std::string_view name, std::size_t at_least) const {
    TRY(auto values, file_.get_uint_array(key_of(name)));
    TRY_OK(check_count(name, values.size(), at_least));
    return values;
  }

  Result<std::vector<bool>> bools(std::string_view name, std::size_t at_least) const {
    TRY(auto values, file_.get_bool_array(key_of(name)));
    TRY_OK(check_count(name, values.size(), at_least));
    return values;
  }

  Result<float> real(std::string_view name) const {
    TRY(const double value, file_.get_float(key_of(name)));
    if (!(value > 0) || !std::isfinite(value)) {
      return fail(Code::kInvalidArgument, "{}: {} is {}, expected a number above 0", path(), key_of(name),
                  value);
    }
    return static_cast<float>(value);
  }

  Result<uint32_t> token(std::string_view name, uint32_t vocab) const {
    TRY(const uint64_t value, file_.get_uint(key_of(name)));
    if (value >= vocab) {
      return fail(Code::kInvalidArgument, "{}: {} is {}, the vocabulary has {} tokens", path(), key_of(name),
                  value, vocab);
    }
    return static_cast<uint32_t>(value);
  }

 private:
  Result<uint32_t> positive(std::string_view name, uint64_t value) const {
    if (value == 0)
      return fail(Code::kInvalidArgument, "{}: {} is 0, expected at least 1", path(), key_of(name));
    return static_cast<uint32_t>(value);
  }

  Status check_count(std::string_view name, std::size_t found, std::size_t at_least) const {
    if (found >= at_least) return {};
    return fail(Code::kInvalidArgument, "{}: {} has {} entries, expected at least {}", path(), key_of(name),
                found, at_least);
  }

  const gguf::GgufFile& file_;
};

Status require_architecture(const gguf::GgufFile& file) {
  TRY(const std::string_view architecture, file.get_string("general.architecture"));
  if (file.find("general.type") != nullptr) {
    TRY(const std::string_view type, file.get_string("general.type"));
    if (type == "mmproj") {
      return fail(Code::kInvalidArgument,
                  "{}: general.type is mmproj: this is the vision part of a model, not the language model",
                  file.path());
    }
  }
  if (architecture != kArchitecture) {
    return fail(Code::kUnimplemented, "{}: general.architecture is {}, which is not supported; supported: {}",
                file.path(), architecture, kArchitecture);
  }
  return {};
}

Result<uint32_t> read_vocab(const gguf::GgufFile& file, const Keys& keys) {
  if (keys.has("vocab_size")) return keys.size("vocab_size");
  const gguf::Value* tokens = file.find("tokenizer.ggml.tokens");
  const auto* array =
      tokens == nullptr ? nullptr : std::get_if<std::shared_ptr<const gguf::Array>>(&tokens->data);
  if (array == nullptr || (*array)->count == 0 || (*array)->count > INT32_MAX) {
    return fail(Code::kInvalidArgument,
                "{}: neither {} nor a usable tokenizer.ggml.tokens tells the size of the vocabulary",
                file.path(), key_of("vocab_size"));
  }
  return static_cast<uint32_t>((*array)->count);
}

Status read_layers(const Keys& keys, const gguf::GgufFile& file, ModelConfig& config) {
  TRY(const uint32_t blocks, keys.size("block_count"));
  TRY(const uint64_t drafts, file.get_uint_or(key_of("nextn_predict_layers"), 0));
  if (drafts >= blocks) {
    return fail(Code::kInvalidArgument, "{}: {} is {} of {} blocks: no trunk layer is left", file.path(),
                key_of("nextn_predict_layers"), drafts, blocks);
  }
  config.draft_layers = static_cast<uint32_t>(drafts);
  config.layers = blocks - config.draft_layers;
  if (config.layers > kLayersMax) {
    return fail(Code::kInvalidArgument, "{}: {} gives {} layers, at most {} are supported", file.path(),
                key_of("block_count"), config.layers, kLayersMax);
  }

  config.layer_kinds.resize(config.layers);
  if (keys.has("attention.recurrent_layers")) {
    TRY(const auto recurrent, keys.bools("attention.recurrent_layers", config.layers));
    for (uint32_t i = 0; i < config.layers; ++i) {
      config.layer_kinds[i] = recurrent[i] ? LayerKind::kRecurrent : LayerKind::kAttention;
    }
  } else {
    TRY(const uint64_t interval,
        file.get_uint_or(key_of("full_attention_interval"), kDefaultInterval, UINT32_MAX));
    if (interval == 0) {
      return fail(Code::kInvalidArgument, "{}: {} is 0, expected at least 1", file.path(),
                  key_of("full_attention_interval"));
    }
    for (uint32_t i = 0; i < config.layers; ++i) {
      config.layer_kinds[i] = (i + 1) % interval == 0 ? LayerKind::kAttention : LayerKind::kRecurrent;
    }
  }

  TRY(const auto ratios, keys.uints("attention.compress_ratios", config.layers));
  config.block_tokens.assign(config.layers, 0);
  for (uint32_t i = 0; i < config.layers; ++i) {
    if (config.layer_kinds[i] != LayerKind::kAttention) continue;
    if (ratios[i] > UINT32_MAX) {
      return fail(Code::kInvalidArgument, "{}: {} has {}", file.path(), key_of("attention.compress_ratios"),
                  ratios[i]);
    }
    config.block_tokens[i] = static_cast<uint32_t>(ratios[i]);
  }
  return {};
}

Status read_yarn(const Keys& keys, const gguf::GgufFile& file, RopeConfig& rope) {
  if (!keys.has("rope.scaling.type")) return {};
  TRY(const std::string_view type, file.get_string(key_of("rope.scaling.type")));
  if (type == "none") return {};
  if (type != "yarn") {
    return fail(Code::kUnimplemented, "{}: {} is {}, supported: none, yarn", file.path(),
                key_of("rope.scaling.type"), type);
  }
  TRY(rope.factor, keys.real("rope.scaling.factor"));
  TRY(rope.original_context, keys.size("rope.scaling.original_context_length"));
  if (keys.has("rope.scaling.yarn_beta_fast")) {
    TRY(rope.beta_fast, keys.real("rope.scaling.yarn_beta_fast"));
  }
  if (keys.has("rope.scaling.yarn_beta_slow")) {
    TRY(rope.beta_slow, keys.real("rope.scaling.yarn_beta_slow"));
  }
  // Both would change the formula; only their neutral value is in use.
  for (const std::string_view name : {"rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor"}) {
    TRY(const double value, file.get_float_or(key_of(name), 1.0));
    if (value != 1.0)
      return fail(Code::kUnimplemented, "{}: {} is {}, supported: 1", file.path(), key_of(name), value);
  }
  return {};
}

Status read_attention(const Keys& keys, const gguf::GgufFile& file, ModelConfig& config) {
  TRY(config.heads, keys.size("attention.head_count"));
  TRY(config.kv_heads, keys.size_or_array("attention.head_count_kv"));
  TRY(config.head_dim, keys.size("attention.key_length"));
  TRY(const uint32_t value_dim, keys.size("attention.value_length"));
  if (value_dim != config.head_dim) {
    return fail(Code::kUnimplemented, "{}: {} is {}, {} is {}; they must be equal", file.path(),
                key_of("attention.value_length"), value_dim, key_of("attention.key_length"), config.head_dim);
  }
  TRY(config.eps, keys.real("attention.layer_norm_rms_epsilon"));
  TRY(config.indexer_heads, keys.size("attention.indexer.head_count"));
  TRY(config.indexer_dim, keys.size("attention.indexer.key_length"));
  TRY(config.indexer_top_k, keys.size("attention.indexer.top_k"));
  TRY(config.rope.dims, keys.size("rope.dimension_count"));
  TRY(config.rope.base, keys.real("rope.freq_base"));
  TRY(const auto sections, keys.uints("rope.dimension_sections", 3));
  for (std::size_t i = 0; i < 3; ++i)
    config.rope.sections[i] = static_cast<uint32_t>(std::min<uint64_t>(sections[i], UINT32_MAX));
  return read_yarn(keys, file, config.rope);
}

Status read_delta_net(const Keys& keys, ModelConfig& config) {
  TRY(config.conv_taps, keys.size("ssm.conv_kernel"));
  TRY(config.state_dim, keys.size("ssm.state_size"));
  TRY(config.key_heads, keys.size("ssm.group_count"));
  TRY(config.value_heads, keys.size("ssm.time_step_rank"));
  TRY(const uint32_t inner, keys.size("ssm.inner_size"));
  if (inner != uint64_t{config.value_heads} * config.state_dim) {
    return fail(Code::kInvalidArgument, "{}: {} is {}, expected {} * {} = {}", keys.path(),
                key_of("ssm.inner_size"), inner, key_of("ssm.time_step_rank"), key_of("ssm.state_size"),
                uint64_t{config.value_heads} * config.state_dim);
  }
  return {};
}

Status read_ngram(const Keys& keys, ModelConfig& config) {
  if (!keys.has("ple.layers")) return {};
  TRY(const auto layers, keys.uints("ple.layers", 0));
  if (layers.empty()) return {};
  if (layers.size() > 1) {
    return fail(Code::kUnimplemented, "{}: {} names {} layers, at most one is supported", keys.path(),
                key_of("ple.layers"), layers.size());
  }
  if (layers[0] >= config.layers) {
    return fail(Code::kInvalidArgument, "{}: {} names layer {} of {}", keys.path(), key_of("ple.layers"),
                layers[0], config.layers);
  }
  config.ngram_layer = static_cast<int32_t>(layers[0]);
  TRY(config.ngram_size, keys.size("ple.ngram_size"));
  TRY(config.ngram_heads, keys.size("ple.heads_per_ngram"));
  TRY(config.ngram_taps, keys.size("ple.conv_kernel"));
  TRY(config.ngram_row, keys.size("embedding_length_per_layer_input"));
  TRY(const uint32_t cut_token, keys.token("ple.eos_token_id", config.vocab));
  config.ngram_cut_token = static_cast<int32_t>(cut_token);
  TRY(config.ngram_multipliers, keys.uints("ple.layer_multipliers", 0));
  TRY(config.ngram_offsets, keys.uints("ple.head_offsets", 0));
  TRY(config.ngram_sizes, keys.uints("ple.head_vocab_sizes", 0));
  return {};
}

// One rule between values: what it is about, and whether it holds.
Status require(bool holds, std::string_view where, std::string_view name, const std::string& text) {
  if (holds) return {};
  return fail(Code::kInvalidArgument, "{}: {}: {}", where, key_of(name), text);
}

Status check_attention(const ModelConfig& c, std::string_view where) {
  TRY_OK(require(c.heads % c.kv_heads == 0, where, "attention.head_count_kv",
                 fmt::format("{} heads are no multiple of {} key/value heads", c.heads, c.kv_heads)));
  TRY_OK(
      require(c.rope.dims % 2 == 0 && c.rope.dims <= c.head_dim && c.rope.dims <= c.indexer_dim, where,
              "rope.dimension_count",
              fmt::format("{} rotated values must be even and at most the head size {} and the indexer's {}",
                          c.rope.dims, c.head_dim, c.indexer_dim)));
  const uint64_t pairs = uint64_t{c.rope.sections[0]} + c.rope.sections[1] + c.rope.sections[2];
  TRY_OK(require(pairs == c.rope.dims / 2, where, "rope.dimension_sections",
                 fmt::format("they sum to {}, expected half of {}", pairs, c.rope.dims)));
  for (std::size_t layer = 0; layer < c.block_tokens.size(); ++layer) {
    const uint32_t block = c.block_tokens[layer];
    TRY_OK(require(
        block == 0 || (block <= c.indexer_top_k && c.indexer_top_k % block == 0), where,
        "attention.indexer.top_k",
        fmt::format("{} tokens are no multiple of layer {}'s blocks of {}", c.indexer_top_k, layer, block)));
  }
  return require(c.rope.factor >= 1.0f, where, "rope.scaling.factor",
                 fmt::format("{}, expected at least 1", c.rope.factor));
}

Status check_ngram(const ModelConfig& c, std::string_view where) {
  if (c.ngram_layer < 0) return {};
  TRY_OK(require(c.layer_kinds[static_cast<uint32_t>(c.ngram_layer)] == LayerKind::kRecurrent, where,
                 "ple.layers",
                 fmt::format("layer {} is an attention layer, expected a recurrent one", c.ngram_layer)));
  TRY_OK(require(c.ngram_size >= 2 && c.ngram_size <= kNgramSizeMax, where, "ple.ngram_size",
                 fmt::format("{}, expected 2 to {}", c.ngram_size, kNgramSizeMax)));
  TRY_OK(require(c.ngram_taps <= kConvTapsMax, where, "ple.conv_kernel",
                 fmt::format("{} taps, at most {} are supported", c.ngram_taps, kConvTapsMax)));
  const uint64_t rows = uint64_t{c.ngram_size - 1} * c.ngram_heads;
  TRY_OK(require(
      rows <= c.hidden && rows * c.ngram_row == c.hidden, where, "embedding_length_per_layer_input",
      fmt::format("{} rows of {} values do not make the hidden size {}", rows, c.ngram_row, c.hidden)));
  const auto enough = [&](const std::vector<uint64_t>& values, uint64_t needed, std::string_view name) {
    return require(values.size() >= needed, where, name,
                   fmt::format("{} entries, expected at least {}", values.size(), needed));
  };
  TRY_OK(enough(c.ngram_multipliers, c.ngram_size, "ple.layer_multipliers"));
  TRY_OK(enough(c.ngram_offsets, rows, "ple.head_offsets"));
  TRY_OK(enough(c.ngram_sizes, rows, "ple.head_vocab_sizes"));
  for (uint64_t head = 0; head < rows; ++head) {
    TRY_OK(
        require(c.ngram_sizes[head] > 0, where, "ple.head_vocab_sizes", fmt::format("entry {} is 0", head)));
    TRY_OK(require(c.ngram_offsets[head] <= UINT32_MAX && c.ngram_sizes[head] <= UINT32_MAX, where,
                   "ple.head_offsets", fmt::format("entry {} reaches beyond any table", head)));
  }
  return {};
}

}  // namespace

Status check_model_config(const ModelConfig& c, std::string_view where) {
  TRY_OK(require(c.streams >= 2 && c.streams <= kStreamsMax, where, "hyper_connection.count",
                 fmt::format("{} streams, expected 2 to {}", c.streams, kStreamsMax)));
  TRY_OK(require(c.vocab <= INT32_MAX, where, "vocab_size", fmt::format("{} tokens", c.vocab)));
  TRY_OK(require(c.experts <= kExpertsMax, where, "expert_count",
                 fmt::format("{} experts, at most {} are supported", c.experts, kExpertsMax)));
  TRY_OK(require(c.experts_used <= c.experts && c.experts_used <= kExpertsPerTokenMax, where,
                 "expert_used_count",
                 fmt::format("{} of {} experts, at most {} are supported", c.experts_used, c.experts,
                             kExpertsPerTokenMax)));
  TRY_OK(require(c.value_heads % c.key_heads == 0, where, "ssm.time_step_rank",
                 fmt::format("{} value heads are no multiple of {} key heads", c.value_heads, c.key_heads)));
  TRY_OK(require(c.conv_taps <= kConvTapsMax, where, "ssm.conv_kernel",
                 fmt::format("{} taps, at most {} are supported", c.conv_taps, kConvTapsMax)));
  // Products of sizes are held in 32 bits.
  const auto product_fits = [&](uint64_t a, uint64_t b, std::string_view name) {
    return require(b == 0 || a <= UINT32_MAX / 4 / b, where, name, fmt::format("{} * {} is too large", a, b));
  };
  TRY_OK(product_fits(c.streams, c.hidden, "embedding_length"));
  TRY_OK(product_fits(uint64_t{2} * c.heads, c.head_dim, "attention.key_length"));
  TRY_OK(product_fits(c.indexer_heads, c.indexer_dim, "attention.indexer.key_length"));
  TRY_OK(product_fits(uint64_t{2} * c.key_heads + c.value_heads, c.state_dim, "ssm.state_size"));
  TRY_OK(check_attention(c, where));
  return check_ngram(c, where);
}

Result<ModelConfig> read_model_config(const gguf::GgufFile& file) {
  TRY_OK(require_architecture(file));
  const Keys keys(file);
  ModelConfig config;
  if (file.find("general.name") != nullptr) {
    TRY(const std::string_view name, file.get_string("general.name"));
    config.name = name;
  }
  TRY(config.context_length, keys.size("context_length"));
  TRY(config.hidden, keys.size("embedding_length"));
  TRY(config.streams, keys.size("hyper_connection.count"));
  TRY(config.mixer_rank, keys.size("hyper_connection.low_rank"));
  TRY(config.vocab, read_vocab(file, keys));
  TRY(config.experts, keys.size("expert_count"));
  TRY(config.experts_used, keys.size("expert_used_count"));
  TRY(config.expert_width, keys.largest("expert_feed_forward_length"));
  TRY(config.shared_width, keys.size("expert_shared_feed_forward_length"));
  TRY_OK(read_layers(keys, file, config));
  TRY_OK(read_attention(keys, file, config));
  TRY_OK(read_delta_net(keys, config));
  TRY_OK(read_ngram(keys, config));
  TRY_OK(check_model_config(config, file.path()));
  return config;
}

Result<SamplingDefaults> read_sampling_defaults(const gguf::GgufFile& file) {
  SamplingDefaults defaults;
  const auto read_float = [&](std::string_view key, double most, float& value, bool& has) -> Status {
    if (file.find(key) == nullptr) return {};
    TRY(const double found, file.get_float(key));
    if (!(found >= 0) || !(found <= most)) {
      return fail(Code::kInvalidArgument, "{}: {} is {}, expected 0 to {}", file.path(), key, found, most);
    }
    value = static_cast<float>(found);
    has = true;
    return {};
  };
  constexpr double kTemperatureMax = 100;
  TRY_OK(
      read_float("general.sampling.temp", kTemperatureMax, defaults.temperature, defaults.has_temperature));
  TRY_OK(read_float("general.sampling.top_p", 1.0, defaults.top_p, defaults.has_top_p));
  TRY_OK(read_float("general.sampling.min_p", 1.0, defaults.min_p, defaults.has_min_p));
  if (file.find("general.sampling.top_k") != nullptr) {
    TRY(const int64_t top_k, file.get_int("general.sampling.top_k"));
    // 0 and below mean "off" in files.
    defaults.top_k = static_cast<uint32_t>(std::clamp<int64_t>(top_k, 0, UINT32_MAX));
    defaults.has_top_k = true;
  }
  return defaults;
}

}  // namespace strata::model
