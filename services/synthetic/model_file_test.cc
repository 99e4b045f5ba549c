#include "services/synthetic/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "services/model/forward.h"
#include "services/model/model_weights.h"
#include "services/synthetic/encoder.h"
#include "services/synthetic/model_spec.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::synthetic {
namespace {

using ::testing::HasSubstr;

class ModelFileTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  Result<uint64_t> write(std::string_view spec, uint32_t threads = 2,
                         const std::atomic<bool>* cancelled = nullptr) {
    const auto request = parse_model_spec(spec);
    EXPECT_TRUE(request);
    const auto plan = plan_model(*request);
    EXPECT_TRUE(plan) << plan.error().message();
    return write_model_file(
        *plan, {.path = path_, .seed = request->seed, .threads = threads, .cancelled = cancelled});
  }
  model::ModelWeights load() const {
    const auto file = gguf::GgufFile::open(path_);
    EXPECT_TRUE(file) << file.error().message();
    auto weights = model::load_model(*file);
    EXPECT_TRUE(weights) << weights.error().message();
    return std::move(*weights);
  }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const std::string path_ = fmt::format("{}/{}.gguf", ::testing::TempDir(),
                                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

double rms(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST_F(ModelFileTest, LoadsAndSaysThatItIsMadeUp) {
  const auto size = write("demo-shape:layers=4:ngram=full");
  ASSERT_TRUE(size) << size.error().message();
  EXPECT_EQ(*size, std::filesystem::file_size(path_));
  const model::ModelWeights weights = load();
  EXPECT_EQ(weights.layers.size(), 4u);
  EXPECT_EQ(weights.layers[3].kind, model::LayerKind::kAttention);
  EXPECT_EQ(weights.layers[0].moe.experts.count, 64u);
  EXPECT_EQ(*weights.file.get_string(kSyntheticKey), "random weights: demo-shape:layers=4:ngram=full");
  EXPECT_THAT(weights.config.name, HasSubstr("SYNTHETIC"));
  const auto tokenizer = tokenizer::Tokenizer::from_gguf(weights.file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_EQ(tokenizer->vocab_size(), 8192u);
  EXPECT_EQ(tokenizer->token_bytes(8000), " t8000");
}

// The forward pass keeps its numbers in the range that trained models have.
TEST_F(ModelFileTest, ActivationsStayFiniteAndOfOrdinarySize) {
  for (const char* spec :
       {"demo-shape", "demo-shape:types=NVFP4/Q2_0:dense=Q8_0", "demo-shape:types=Q3_K/MXFP4"}) {
    SCOPED_TRACE(spec);
    ASSERT_TRUE(write(spec));
    {
      const model::ModelWeights weights = load();
      model::Parallel parallel(1);
      model::Forward forward(weights, quant::Numerics::kReproducible, 16, parallel);
      model::LocalExperts experts(weights, quant::Numerics::kReproducible);
      model::SequenceState state(weights.config, 16);
      std::vector<model::WindowRow> rows;
      for (int32_t token = 0; token < 12; ++token)
        rows.push_back({.sequence = &state, .token = 40 + 13 * token, .want_logits = true});
      std::vector<float> logits(rows.size() * weights.config.vocab);
      int32_t bad_row = 0;
      ASSERT_TRUE(forward.run(rows, experts, logits, &bad_row).ok());
      EXPECT_EQ(bad_row, -1);
      EXPECT_GT(rms(logits), 0.1);
      EXPECT_LT(rms(logits), 10);
    }
    std::filesystem::remove(path_);
  }
}

TEST_F(ModelFileTest, RowsAndExpertsDifferAndHaveTheRightSize) {
  ASSERT_TRUE(write("demo-shape:layers=1:types=Q8_0"));
  const model::ModelWeights weights = load();
  const auto& experts = weights.layers[0].moe.experts;
  std::vector<std::vector<float>> rows;
  for (const uint32_t expert : {0u, 1u, 63u}) {
    for (const uint32_t row : {0u, 1u, 63u}) {
      std::vector<float> values(experts.hidden);
      const model::Matrix gate = experts.expert(expert).gate;
      quant::dequantize_row(gate.type, gate.row(row), values.data(), experts.hidden);
      EXPECT_NEAR(rms(values) * std::sqrt(experts.hidden), 1, 0.2);
      for (const auto& other : rows) EXPECT_NE(values, other);
      rows.push_back(std::move(values));
    }
  }
}

TEST_F(ModelFileTest, HasTheSameBytesWhateverTheThreads) {
  ASSERT_TRUE(write("demo-shape:seed=4", 1));
  const std::string one = bytes();
  std::filesystem::remove(path_);
  ASSERT_TRUE(write("demo-shape:seed=4", 3));
  EXPECT_EQ(bytes(), one);
  std::filesystem::remove(path_);
  ASSERT_TRUE(write("demo-shape:seed=5", 3));
  const std::string other = bytes();
  EXPECT_EQ(other.size(), one.size());
  EXPECT_NE(other, one);
}

TEST_F(ModelFileTest, LeavesFilesThatAreThereAloneAndNoneOfItsOwnBehind) {
  std::ofstream(path_) << "mine";
  const auto written = write("demo-shape");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), Code::kAlreadyExists);
  EXPECT_EQ(bytes(), "mine");
  std::filesystem::remove(path_);
  const std::atomic<bool> cancelled = true;
  const auto stopped = write("demo-shape", 2, &cancelled);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(path_));
  // More than any machine's disk: refused before anything is written.
  const auto request = parse_model_spec("demo-shape:experts=1000");
  auto plan = plan_model(*request);
  plan->tensors.push_back(
      {.name = "huge", .type = TensorType::kF32, .dims = {uint64_t{1} << 48}, .deviation = 1, .mean = 0});
  const auto huge = write_model_file(*plan, {.path = path_});
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code(), Code::kResourceExhausted);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace strata::synthetic
