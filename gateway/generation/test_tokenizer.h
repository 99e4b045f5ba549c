#pragma once
// The demo model's tokenizer, for tests that turn text into tokens and back.

#include <gtest/gtest.h>

#include "services/gguf/gguf_file.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

inline const tokenizer::Tokenizer& test_tokenizer() {
  static const tokenizer::Tokenizer tokenizer = [] {
    auto file = gguf::GgufFile::open(STRATA_SOURCE_DIR "/models/strata-demo.gguf");
    EXPECT_TRUE(file) << file.error().message();
    auto loaded = tokenizer::Tokenizer::from_gguf(*file);
    EXPECT_TRUE(loaded) << loaded.error().message();
    return std::move(*loaded);
  }();
  return tokenizer;
}

}  // namespace strata::gateway
