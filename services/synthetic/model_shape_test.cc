#include "services/synthetic/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::synthetic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The constants of the released model (model-qwen4exp section 5).
TEST(NgramHashes, AreThoseOfTheReleasedModelInItsShape) {
  ModelShape shape;
  shape.vocabulary = 248320;
  shape.ngram_size = 3;
  shape.ngram_heads = 8;
  shape.table_rows = 20000000;
  const NgramHashes hashes = ngram_hashes(shape);
  EXPECT_THAT(hashes.multipliers, ElementsAre(23703573157769u, 20109073645365u, 8052911324071u));
  EXPECT_THAT(hashes.sizes,
              ElementsAre(20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
                          20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171));
  EXPECT_EQ(hashes.table_rows, 320001536u);
  EXPECT_EQ(hashes.offsets[2], 20000003u + 20000023u);
}

TEST(ModelShape, FillsInHeadsAndVocabulary) {
  const auto shape = completed({.hidden = 512});
  ASSERT_TRUE(shape);
  EXPECT_EQ(shape->heads, 8u);
  EXPECT_EQ(shape->kv_heads, 4u);
  EXPECT_EQ(shape->qkv_dim(), 1024u);
  EXPECT_GT(shape->vocabulary, 256u);
}

TEST(ModelShape, SaysWhichSizesDoNotFit) {
  const auto fault = [](const ModelShape& shape) {
    const auto made = completed(shape);
    return made ? std::string("none") : made.error().message();
  };
  EXPECT_EQ(fault({}), "none");
  EXPECT_THAT(fault({.layers = 0}), HasSubstr("layer"));
  EXPECT_THAT(fault({.hidden = 64}), HasSubstr("hidden size"));
  EXPECT_THAT(fault({.experts = 1}), HasSubstr("experts"));
  EXPECT_THAT(fault({.ngram_heads = 3}), HasSubstr("n-gram rows"));
  EXPECT_THAT(fault({.vocabulary = 10}), HasSubstr("vocabulary"));
}

}  // namespace
}  // namespace strata::synthetic
