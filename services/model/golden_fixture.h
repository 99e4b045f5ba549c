#pragma once
// What the golden tests share: the model of a folder, its index.json, and running tokens through the forward
// pass.

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/model/forward.h"
#include "tests/support/test_data.h"

namespace strata::model::golden {

namespace json = boost::json;

inline json::value read_index(const std::filesystem::path& folder) {
  return json::parse(tests::read_text(folder / "index.json"));
}

// The model file whose name contains `part`, of those that index.json lists.
inline std::string gguf_name(const json::value& index, std::string_view part) {
  for (const auto& entry : index.at("gguf").as_object()) {
    if (std::string_view(entry.key()).find(part) != std::string_view::npos) return entry.key();
  }
  ADD_FAILURE() << "index.json lists no model " << part;
  return {};
}

inline std::shared_ptr<const ModelWeights> load(const std::filesystem::path& path) {
  auto file = gguf::GgufFile::open(path.string());
  if (!file) {
    ADD_FAILURE() << file.error().message();
    return nullptr;
  }
  auto weights = load_model(*file);
  if (!weights) {
    ADD_FAILURE() << weights.error().message();
    return nullptr;
  }
  return std::make_shared<const ModelWeights>(std::move(*weights));
}

// One array of a golden folder with its shape.
template <class T>
struct Array {
  std::vector<T> values;
  std::vector<std::size_t> shape;
  std::vector<uint32_t> positions = {},
                        layers = {};  // what the first dimension stands for, where index.json says so

  // The stretch of all values under the given leading indices.
  template <class... Index>
  std::span<const T> at(Index... index) const {
    std::size_t offset = 0, stride = values.size(), dimension = 0;
    ((stride /= shape[dimension++], offset += static_cast<std::size_t>(index) * stride), ...);
    return std::span(values).subspan(offset, stride);
  }
};

template <class T>
Array<T> read(const std::filesystem::path& folder, const json::value& index, const std::string& name) {
  const json::object& entry = index.at("files").at(name).as_object();
  Array<T> array{.values = tests::read_array<T>(folder / name),
                 .shape = json::value_to<std::vector<std::size_t>>(entry.at("shape"))};
  const auto list = [&](const char* key, std::vector<uint32_t>& out) {
    if (entry.contains(key)) out = json::value_to<std::vector<uint32_t>>(entry.at(key));
  };
  list("positions", array.positions);
  list("layers", array.layers);
  return array;
}

// One sequence on its own forward pass.
class Runner {
 public:
  Runner(const ModelWeights& weights, quant::Numerics numerics, uint32_t capacity, uint32_t rows_max,
         uint32_t threads = 1)
      : weights_(weights),
        parallel_(threads),
        forward_(weights, numerics, rows_max, parallel_),
        experts_(weights, numerics),
        state_(weights.config, capacity) {}

  Forward& forward() { return forward_; }
  SequenceState& state() { return state_; }
  LocalExperts& experts() { return experts_; }

  // Logits of every token (tokens, V).
  std::vector<float> run(std::span<const int32_t> tokens) {
    std::vector<WindowRow> rows;
    for (const int32_t token : tokens)
      rows.push_back({.sequence = &state_, .token = token, .want_logits = true});
    std::vector<float> logits(tokens.size() * weights_.config.vocab);
    int32_t bad_row = 0;
    const Status status = forward_.run(rows, experts_, logits, &bad_row);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(bad_row, -1);
    return logits;
  }

  // The same in windows of the given sizes; what is left over goes into a last one.
  std::vector<float> run_cut(std::span<const int32_t> tokens, std::span<const std::size_t> sizes) {
    std::vector<float> logits;
    std::size_t next = 0;
    const auto take = [&](std::size_t size) {
      const auto part = run(tokens.subspan(next, size));
      logits.insert(logits.end(), part.begin(), part.end());
      next += size;
    };
    for (const std::size_t size : sizes) take(std::min(size, tokens.size() - next));
    if (next < tokens.size()) take(tokens.size() - next);
    return logits;
  }

 private:
  const ModelWeights& weights_;
  Parallel parallel_;
  Forward forward_;
  LocalExperts experts_;
  SequenceState state_;
};

inline double max_abs_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= most)) most = difference;  // NaN counts
  }
  return most;
}

inline std::size_t arg_max(std::span<const float> values) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

}  // namespace strata::model::golden
