#include "cpu-expert-worker/read_ahead.h"

#include <gtest/gtest.h>

#include <chrono>

#include "services/gguf/gguf_file.h"
#include "tests/support/test_data.h"

namespace strata::cpu_expert_worker {
namespace {

class ReadAheadTest : public testing::Test {
 protected:
  void SetUp() override {
    auto file = gguf::GgufFile::open(tests::models_golden_model().string());
    ASSERT_TRUE(file);
    auto table = model::load_experts(*file);
    ASSERT_TRUE(table);
    layers_ = table->layers;
    file_ = table->file;
  }
  static void wait_for(const ReadAhead& read_ahead) {
    for (int i = 0; i < 6000 && !read_ahead.finished(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(read_ahead.finished());
  }
  std::optional<gguf::GgufFile> file_;
  std::vector<model::LayerExperts> layers_;
};

TEST_F(ReadAheadTest, ReadsAllExpertsOfTheModel) {
  const ReadAhead read_ahead(layers_, UINT64_MAX);
  wait_for(read_ahead);
  uint64_t bytes = 0;
  for (const auto& layer : layers_) {
    bytes += layer.count * (layer.gate_expert_bytes + layer.up_expert_bytes + layer.down_expert_bytes);
  }
  EXPECT_EQ(read_ahead.total_bytes(), bytes);
  EXPECT_EQ(read_ahead.read_bytes(), bytes);
}

TEST_F(ReadAheadTest, WorkersReadEveryExpertOnceTogether) {
  const ReadAhead all(layers_, UINT64_MAX);
  uint64_t bytes = 0;
  for (uint32_t index = 0; index < 3; ++index) {
    const ReadAhead part(layers_, UINT64_MAX, {.index = index, .of = 3});
    wait_for(part);
    EXPECT_EQ(part.read_bytes(), part.total_bytes());
    bytes += part.read_bytes();
  }
  EXPECT_EQ(bytes, all.total_bytes());
}

TEST_F(ReadAheadTest, StopsAtWhatMemoryHolds) {
  const ReadAhead all(layers_, UINT64_MAX);
  const ReadAhead half(layers_, all.total_bytes() / 2);
  wait_for(half);
  EXPECT_LE(half.read_bytes(), all.total_bytes() / 2);
  EXPECT_GT(half.read_bytes(), 0U);
}

}  // namespace
}  // namespace strata::cpu_expert_worker
