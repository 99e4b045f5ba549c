// The forms in which files of the family come: each is made from the tiny model and must compute the same
// bits.
#include "services/model/model_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <map>

#include "services/gguf/file_builder.h"
#include "services/model/golden_fixture.h"
#include "services/model/record_checksum.h"

namespace strata::model {
namespace {

using gguf::FileBuilder;
using gguf::TensorType;
using gguf::ValueType;
using quant::Numerics;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string value_bytes(const gguf::Value& value) {
  const auto u = [&] { return std::get<uint64_t>(value.data); };
  const auto i = [&] { return std::get<int64_t>(value.data); };
  switch (value.type) {
    case ValueType::kU8:
      return FileBuilder::number(static_cast<uint8_t>(u()));
    case ValueType::kU16:
      return FileBuilder::number(static_cast<uint16_t>(u()));
    case ValueType::kU32:
      return FileBuilder::number(static_cast<uint32_t>(u()));
    case ValueType::kU64:
      return FileBuilder::number(u());
    case ValueType::kI8:
      return FileBuilder::number(static_cast<int8_t>(i()));
    case ValueType::kI16:
      return FileBuilder::number(static_cast<int16_t>(i()));
    case ValueType::kI32:
      return FileBuilder::number(static_cast<int32_t>(i()));
    case ValueType::kI64:
      return FileBuilder::number(i());
    case ValueType::kF32:
      return FileBuilder::number(static_cast<float>(std::get<double>(value.data)));
    case ValueType::kF64:
      return FileBuilder::number(std::get<double>(value.data));
    case ValueType::kBool:
      return FileBuilder::number(static_cast<uint8_t>(std::get<bool>(value.data)));
    case ValueType::kString:
      return FileBuilder::text(std::get<std::string_view>(value.data));
    case ValueType::kArray:
      break;
  }
  const gguf::Array& array = *std::get<std::shared_ptr<const gguf::Array>>(value.data);
  std::string bytes =
      FileBuilder::number(static_cast<uint32_t>(array.element)) + FileBuilder::number(array.count);
  for (const std::byte b : array.bytes) bytes.push_back(static_cast<char>(b));
  return bytes;
}

struct Tensor {
  TensorType type = TensorType::kF32;
  std::vector<uint64_t> dims;
  std::string data;
};

// The tensors of a file by name, to be changed and written again.
class Copy {
 public:
  explicit Copy(const gguf::GgufFile& file) : file_(file) {
    for (const gguf::TensorInfo& info : file.tensors()) {
      Tensor tensor{.type = info.type, .dims = {info.dims, info.dims + info.dim_count}, .data = {}};
      for (const std::byte b : info.data) tensor.data.push_back(static_cast<char>(b));
      tensors[std::string(info.name)] = std::move(tensor);
    }
  }

  gguf::GgufFile write() {
    FileBuilder builder;
    for (const gguf::KeyValue& pair : file_.metadata())
      builder.key(pair.key, pair.value.type, value_bytes(pair.value));
    for (const auto& [name, tensor] : tensors) builder.tensor(name, tensor.type, tensor.dims, tensor.data);
    bytes_ = builder.build();
    auto parsed = gguf::GgufFile::parse(gguf::bytes_of(bytes_), "copy.gguf");
    EXPECT_TRUE(parsed) << parsed.error().message();
    return *parsed;
  }

  Tensor take(const std::string& name) {
    Tensor tensor = std::move(tensors.at(name));
    tensors.erase(name);
    return tensor;
  }

  // F32 values of a tensor, changed one by one.
  void for_each_value(const std::string& name, const std::function<float(std::size_t, float)>& change) {
    std::string& data = tensors.at(name).data;
    for (std::size_t i = 0; i < data.size() / sizeof(float); ++i) {
      float value = 0;
      std::memcpy(&value, data.data() + i * sizeof(float), sizeof(float));
      value = change(i, value);
      std::memcpy(data.data() + i * sizeof(float), &value, sizeof(float));
    }
  }

  std::map<std::string, Tensor> tensors;

 private:
  const gguf::GgufFile& file_;
  std::string bytes_;
};

class ModelWeightsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto folder = tests::tiny_folder();
    original_ = golden::load(folder / golden::gguf_name(golden::read_index(folder), "trunk"));
  }
  static void TearDownTestSuite() { original_.reset(); }
  void SetUp() override {
    ASSERT_NE(original_, nullptr);
    copy_ = std::make_unique<Copy>(original_->file);
  }

  static std::vector<float> logits_of(const ModelWeights& weights) {
    const std::vector<int32_t> tokens = {1, 5, 9, 200, 1, 5, 9, 17, 300, 301, 302};
    return golden::Runner(weights, Numerics::kReproducible, 16, 16).run(tokens);
  }

  void expect_same_bits() {
    const auto weights = load_model(copy_->write());
    ASSERT_TRUE(weights) << weights.error().message();
    EXPECT_EQ(logits_of(*weights), logits_of(*original_));
  }

  std::string load_error() {
    const auto weights = load_model(copy_->write());
    return weights ? "it loaded" : weights.error().message();
  }

  std::string block(uint32_t layer, const std::string& role) const {
    return fmt::format("blk.{}.{}", layer, role);
  }
  uint32_t attention_layer() const {
    uint32_t layer = 0;
    while (original_->config.layer_kinds[layer] != LayerKind::kAttention) ++layer;
    return layer;
  }

  static std::shared_ptr<const ModelWeights> original_;
  std::unique_ptr<Copy> copy_;
};
std::shared_ptr<const ModelWeights> ModelWeightsTest::original_;

TEST_F(ModelWeightsTest, AnUnchangedCopyComputesTheSame) { expect_same_bits(); }

TEST_F(ModelWeightsTest, TakesGateAndUpExpertsInOneTensor) {
  for (uint32_t layer = 0; layer < original_->config.layers; ++layer) {
    const Tensor gate = copy_->take(block(layer, "ffn_gate_exps.weight"));
    const Tensor up = copy_->take(block(layer, "ffn_up_exps.weight"));
    Tensor joined{.type = gate.type, .dims = {gate.dims[0], 2 * gate.dims[1], gate.dims[2]}, .data = {}};
    const std::size_t expert_bytes = gate.data.size() / gate.dims[2];
    for (std::size_t e = 0; e < gate.dims[2]; ++e) {
      joined.data +=
          gate.data.substr(e * expert_bytes, expert_bytes) + up.data.substr(e * expert_bytes, expert_bytes);
    }
    copy_->tensors[block(layer, "ffn_gate_up_exps.weight")] = joined;
  }
  expect_same_bits();

  const auto table = load_experts(copy_->write());
  ASSERT_TRUE(table);
  std::vector<std::byte> record(table->max_record_bytes);
  table->layers[1].write_record(3, record.data());
  const LayerExperts& experts = original_->layers[1].moe.experts;
  std::vector<std::byte> expected(experts.record_bytes());
  experts.write_record(3, expected.data());
  EXPECT_EQ(record, expected) << "an arena slot looks the same, however the file holds the expert";
}

TEST_F(ModelWeightsTest, TakesQueriesKeysAndValuesInOneTensor) {
  const uint32_t layer = attention_layer();
  Tensor joined = copy_->take(block(layer, "attn_q.weight"));
  for (const char* part : {"attn_k.weight", "attn_v.weight"}) {
    const Tensor tensor = copy_->take(block(layer, part));
    joined.dims[1] += tensor.dims[1];
    joined.data += tensor.data;
  }
  copy_->tensors[block(layer, "attn_qkv.weight")] = joined;
  expect_same_bits();
}

TEST_F(ModelWeightsTest, TakesGroupedNormsInTwoDimensionsAndVectorsInBf16) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : copy_->tensors) {
    if (name.find("norm") != std::string::npos || name.find("conv1d") != std::string::npos)
      names.push_back(name);
  }
  for (const std::string& name : names) {
    copy_->for_each_value(name, [](std::size_t, float value) {
      return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000u);  // exact in BF16
    });
  }
  const auto in_f32 = load_model(copy_->write());
  ASSERT_TRUE(in_f32) << in_f32.error().message();
  const auto expected = logits_of(*in_f32);

  const uint64_t hidden = original_->config.hidden, streams = original_->config.streams;
  for (const std::string& name : names) {
    Tensor& tensor = copy_->tensors[name];
    const bool grouped = name.find("hc_") != std::string::npos || name.find("ple_norm") != std::string::npos;
    if (grouped) tensor.dims = {hidden, streams};
    std::string narrow;
    for (std::size_t i = 0; i < tensor.data.size(); i += sizeof(float))
      narrow += tensor.data.substr(i + 2, 2);
    tensor.type = TensorType::kBF16;
    tensor.data = narrow;
  }
  const auto in_bf16 = load_model(copy_->write());
  ASSERT_TRUE(in_bf16) << in_bf16.error().message();
  EXPECT_FALSE(in_bf16->widened.empty());
  EXPECT_EQ(logits_of(*in_bf16), expected);
}

// Powers of two, so that the scaled product has the same bits.
TEST_F(ModelWeightsTest, MultipliesProductsByTheScaleTensors) {
  copy_->for_each_value("blk.0.attn_qkv.weight", [](std::size_t, float value) { return value * 4; });
  copy_->tensors["blk.0.attn_qkv.scale"] = {
      .type = TensorType::kF32, .dims = {1}, .data = FileBuilder::number(0.25f)};
  Tensor scale{.type = TensorType::kF32, .dims = {original_->config.experts}, .data = {}};
  const auto factor = [](std::size_t expert) { return expert % 2 == 0 ? 2.0f : 0.5f; };
  for (std::size_t e = 0; e < original_->config.experts; ++e) scale.data += FileBuilder::number(factor(e));
  const std::size_t expert_values = std::size_t{original_->config.hidden} * original_->config.expert_width;
  copy_->for_each_value("blk.1.ffn_down_exps.weight",
                        [&](std::size_t i, float value) { return value / factor(i / expert_values); });
  copy_->tensors["blk.1.ffn_down_exps.scale"] = scale;
  expect_same_bits();
}

TEST_F(ModelWeightsTest, TakesTheEmbeddingWhereTheHeadIsMissing) {
  copy_->take("output.weight");
  const auto weights = load_model(copy_->write());
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_EQ(weights->head.data, weights->embedding.data);
}

TEST_F(ModelWeightsTest, NamesAMissingTensorWithItsShape) {
  copy_->take("blk.0.ssm_alpha.weight");
  EXPECT_THAT(load_error(), HasSubstr("no tensor blk.0.ssm_alpha.weight"));
  EXPECT_THAT(load_error(), HasSubstr("copy.gguf"));
}

TEST_F(ModelWeightsTest, NamesATensorOfAnotherShapeWithBothShapes) {
  copy_->tensors["blk.0.ssm_norm.weight"].dims = {2, 64};
  EXPECT_THAT(load_error(), HasSubstr("blk.0.ssm_norm.weight is [2, 64], expected [128]"));
}

TEST_F(ModelWeightsTest, RefusesExpertsThatDisagreeInWidth) {
  Tensor& up = copy_->tensors["blk.2.ffn_up_exps.weight"];
  std::swap(up.dims[1], up.dims[2]);
  EXPECT_THAT(load_error(), HasSubstr("blk.2.ffn_up_exps.weight"));
}

TEST_F(ModelWeightsTest, RefusesAnNgramTableThatIsTooShort) {
  Tensor& table = copy_->tensors["per_layer_token_embd.weight"];
  table.dims[1] = 100;
  table.data.resize(100 * table.dims[0] * sizeof(float));
  EXPECT_THAT(load_error(), HasSubstr("per_layer_token_embd.weight"));
}

TEST_F(ModelWeightsTest, RefusesTypesThatAreNoWeights) {
  for (const char* name :
       {"blk.0.attn_gate.weight", "blk.2.ffn_gate_exps.weight", "blk.2.ffn_down_exps.weight",
        "token_embd.weight", "output.weight", "per_layer_token_embd.weight"}) {
    Tensor& tensor = copy_->tensors.at(name);
    ASSERT_EQ(tensor.type, TensorType::kF32) << name;
    tensor.type = TensorType::kI32;
    EXPECT_THAT(load_error(), AllOf(HasSubstr(name), HasSubstr("weights of type I32 are not supported")));
    tensor.type = TensorType::kF32;
  }
  copy_->tensors["blk.0.ssm_a"].type = TensorType::kI32;
  EXPECT_THAT(load_error(), HasSubstr("blk.0.ssm_a is I32"));
}

TEST_F(ModelWeightsTest, ARecordHoldsTheExpertOfTheFile) {
  const auto folder = tests::tiny_folder();
  const auto mixed = golden::load(folder / golden::gguf_name(golden::read_index(folder), "-00001-of-"));
  ASSERT_NE(mixed, nullptr);
  const auto table = load_experts(mixed->file);
  ASSERT_TRUE(table) << table.error().message();
  EXPECT_EQ(table->max_record_bytes, mixed->max_expert_record_bytes());
  std::vector<std::byte> record(table->max_record_bytes);
  for (const LayerExperts& experts : table->layers) {
    ASSERT_LE(experts.record_bytes(), table->max_record_bytes);
    for (const uint32_t index : {0u, experts.count - 1}) {
      experts.write_record(index, record.data());
      const auto from_file = experts.expert(index), from_record = experts.expert_at(record.data(), index);
      const auto same = [](const quant::Matrix& a, const quant::Matrix& b) {
        return a.type == b.type && a.rows == b.rows && a.cols == b.cols && a.row_bytes == b.row_bytes &&
               a.scale == b.scale && std::memcmp(a.data, b.data, a.rows * a.row_bytes) == 0;
      };
      EXPECT_TRUE(same(from_file.gate, from_record.gate));
      EXPECT_TRUE(same(from_file.up, from_record.up));
      EXPECT_TRUE(same(from_file.down, from_record.down));
      EXPECT_EQ((from_record.down.data - record.data()) % static_cast<std::ptrdiff_t>(kExpertPartAlignment),
                0);
      EXPECT_EQ(record_checksum(experts, index, record.data()), source_checksum(experts, index));
      EXPECT_NE(source_checksum(experts, index), source_checksum(experts, experts.count - 1 - index));
      for (const RecordPart& part : experts.record_parts(index)) {
        std::byte& last = record[part.offset + part.bytes.size() - 1];
        last ^= std::byte{1};
        EXPECT_NE(record_checksum(experts, index, record.data()), source_checksum(experts, index));
        last ^= std::byte{1};
      }
    }
  }
}

}  // namespace
}  // namespace strata::model
