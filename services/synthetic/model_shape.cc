#include "services/synthetic/model_shape.h"

#include <cstdint>

#include "services/synthetic/random.h"
#include "services/synthetic/tokenizer_data.h"

namespace strata::synthetic {
namespace {

bool is_prime(uint64_t n) {
  for (uint64_t divisor = 2; divisor * divisor <= n; ++divisor)
    if (n % divisor == 0) return false;
  return n > 1;
}

}  // namespace

Result<ModelShape> completed(ModelShape s) {
  const auto fill = [](uint32_t& size, uint32_t value) {
    if (size == 0) size = value;
  };
  fill(s.vocabulary, kVocabularyMin);
  fill(s.heads, s.hidden / s.head_dim);
  fill(s.kv_heads, s.heads / 2);
  fill(s.value_heads, s.hidden / s.state_dim);
  fill(s.key_heads, s.value_heads / 2);
  const auto require = [](bool holds, std::string_view text) -> Status {
    if (holds) return {};
    return fail(Code::kInvalidArgument, "{}", text);
  };
  TRY_OK(require(s.layers > 0 && s.attention_interval > 1,
                 "at least one layer, of which the first has no attention"));
  TRY_OK(require(s.hidden > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0 && s.key_heads > 0 &&
                     s.value_heads % s.key_heads == 0,
                 "the hidden size does not make heads (by default it must be a multiple of 128)"));
  TRY_OK(require(s.experts_used > 0 && s.experts_used <= s.experts, "more experts used than there are"));
  TRY_OK(require(s.ngram_size > 1 && s.ngram_heads > 0 && s.hidden % s.ngram_rows() == 0,
                 "the n-gram rows of a token do not make the hidden size"));
  TRY_OK(require(s.table_rows > 0, "an n-gram table without rows"));
  TRY_OK(require(s.vocabulary >= kVocabularyMin, "a vocabulary smaller than the tokenizer's"));
  return s;
}

NgramHashes ngram_hashes(const ModelShape& shape) {
  constexpr uint64_t kSeed = 1234, kGolden = 0x9e3779b97f4a7c15u, kPadding = 128;
  NgramHashes hashes;
  const uint64_t half = INT64_MAX / shape.vocabulary / 2;
  for (uint64_t j = 0; j < shape.ngram_size; ++j)
    hashes.multipliers.push_back(2 * (Random(kSeed + kGolden * (j + 1)).next() % half) + 1);
  uint64_t next = shape.table_rows, rows = 0;
  for (uint32_t head = 0; head < shape.ngram_rows(); ++head) {
    while (!is_prime(next)) ++next;
    hashes.sizes.push_back(next);
    hashes.offsets.push_back(rows);
    rows += next++;
  }
  hashes.table_rows = (rows + kPadding - 1) / kPadding * kPadding;
  return hashes;
}

}  // namespace strata::synthetic
