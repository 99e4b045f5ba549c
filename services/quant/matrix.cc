#include "services/quant/matrix.h"

#include <atomic>

#include "services/base/check.h"
#include "services/quant/kernels.h"

namespace strata::quant {

namespace {

// The three parts of a stored row (matrix.h, q8_row_bytes).
template <class Byte>
struct StoredRow {
  StoredRow(Byte* stored, uint32_t cols)
      : q(stored), d(stored + cols), sum(stored + cols + sizeof(float) * (cols / kActivationBlock)) {}
  Byte* q;
  Byte* d;
  Byte* sum;
};

}  // namespace

Q8Row q8_row_view(const std::byte* stored, uint32_t cols) {
  const StoredRow<const std::byte> row(stored, cols);
  return {reinterpret_cast<const int8_t*>(row.q), reinterpret_cast<const float*>(row.d),
          reinterpret_cast<const int32_t*>(row.sum)};
}

void quantize_q8(std::span<const float> x, std::byte* stored) {
  CHECK(x.size() % kActivationBlock == 0, "{} activations are no multiple of {}", x.size(), kActivationBlock);
  const StoredRow<std::byte> row(stored, static_cast<uint32_t>(x.size()));
  kernels().floats->quantize_q8(x.data(), x.size(), reinterpret_cast<int8_t*>(row.q),
                                reinterpret_cast<float*>(row.d), reinterpret_cast<int32_t*>(row.sum));
}

Activations::Activations(const float* x, uint32_t tokens, uint32_t cols, std::size_t stride)
    : x_(x), stride_(stride), tokens_(tokens), cols_(cols) {}

Activations Activations::from_q8(const std::byte* stored, uint32_t tokens, uint32_t cols,
                                 std::size_t stride_bytes) {
  Activations result;
  result.tokens_ = tokens;
  result.cols_ = cols;
  result.q8_ = stored;
  result.q8_stride_ = stride_bytes;
  return result;
}

void Activations::rebind(const float* x, uint32_t tokens, uint32_t cols, std::size_t stride) {
  x_ = x;
  stride_ = stride;
  tokens_ = tokens;
  cols_ = cols;
  q8_ = nullptr;
  version_ = 0;
}

void Activations::freeze() {
  static std::atomic<uint64_t> last{0};
  version_ = last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void Activations::ensure_q8() {
  if (q8_ != nullptr) return;
  q8_stride_ = q8_row_bytes(cols_);
  if (owned_.size() < tokens_ * q8_stride_) owned_.resize(tokens_ * q8_stride_);
  for (uint32_t token = 0; token < tokens_; ++token) {
    quantize_q8({f32(token), cols_}, owned_.data() + std::size_t{token} * q8_stride_);
  }
  q8_ = owned_.data();
}

}  // namespace strata::quant
