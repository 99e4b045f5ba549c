// Any bytes are weights: every kernel of this machine against the reference, bit for bit, for every type.
// Blocks are random in several ways (see fill_weights), float factors included; shapes are those that a
// kernel may stumble over. The weights and activations end where a page without access begins (or start where
// one ends), so that a read beyond them is a fault.
//
// An ordinary run is a few rounds over all types and numbers of tokens. STRATA_FUZZ_SECONDS=n adds rounds
// with other seeds for that long; STRATA_FUZZ_ROUND=n begins with the round that a failure names.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "services/quant/kernels.h"
#include "services/quant/quant.h"
#include "services/quant/reference.h"
#include "services/quant/test_inputs.h"

namespace strata::quant {
namespace {

using tests::Generator;

constexpr uint64_t kRounds = 8;
constexpr uint32_t kRowsMax = 40, kColsMax = 2560, kTokensMax = 64;
constexpr std::array<uint32_t, 7> kRowCounts = {1, 7, 15, 16, 17, 33, 40};
constexpr std::array<uint32_t, 13> kTokenCounts = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64};
constexpr std::array<uint32_t, 7> kColumns = {32, 96, 256, 512, 640, 1280, 2560};

// Memory between two pages without access.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t capacity)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
        capacity_((capacity + page_ - 1) / page_ * page_) {
    void* all =
        mmap(nullptr, capacity_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(all, MAP_FAILED);
    begin_ = static_cast<std::byte*>(all) + page_;
    EXPECT_EQ(mprotect(begin_, capacity_, PROT_READ | PROT_WRITE), 0);
  }
  ~GuardedMemory() { munmap(begin_ - page_, capacity_ + 2 * page_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::byte* at_the_end(std::size_t bytes) { return begin_ + capacity_ - bytes; }
  std::byte* at_the_start() { return begin_; }

 private:
  std::size_t page_, capacity_;
  std::byte* begin_;
};

template <class T, std::size_t n>
T one_of(Generator& random, const std::array<T, n>& values) {
  return values[random.below(n)];
}

// Any binary16, with a taste for the extreme ones.
uint32_t any_half(Generator& random) {
  // Zeros, the smallest and largest subnormal and normal numbers, infinity, NaN.
  constexpr std::array<uint32_t, 8> kEdges = {0x0000, 0x0001, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0x7c00, 0x7e01};
  if (random.below(2) == 0) return random.below(1u << 16);
  const uint32_t sign = random.below(2) << 15;
  return one_of(random, kEdges) | sign;
}

// How the bytes of a matrix come about: usual factors and random integers; all bytes random; integers at
// their extremes; and the last two with factors at theirs.
enum class Bytes : uint8_t { kUsual, kRandom, kExtreme, kExtremeFactors };
constexpr std::array kBytes = {Bytes::kUsual, Bytes::kUsual, Bytes::kRandom, Bytes::kExtreme,
                               Bytes::kExtremeFactors};

std::vector<std::byte> make_weights(Generator& random, TensorType type, uint32_t rows, uint32_t cols) {
  constexpr std::array<uint32_t, 8> kFills = {0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0, 0x77, 0x88};
  auto bytes = tests::weights(random, type, rows, cols);
  const auto& info = gguf::tensor_type_info(type);
  const Bytes kind = one_of(random, kBytes);
  if (kind == Bytes::kUsual) return bytes;
  if (kind == Bytes::kRandom) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
    return bytes;
  }
  for (std::size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    const auto fill = static_cast<std::byte>(one_of(random, kFills));
    const std::vector<std::byte> usual(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                       bytes.begin() + static_cast<std::ptrdiff_t>(at + info.block_bytes));
    std::byte* block = bytes.data() + at;
    std::fill_n(block, info.block_bytes, fill);
    for (const std::size_t offset : tests::factor_bytes(type)) block[offset] = usual[offset];
    if (kind == Bytes::kExtreme) continue;
    for (const std::size_t offset : tests::half_offsets(type)) {
      const uint32_t half = any_half(random);
      block[offset] = static_cast<std::byte>(half & 255);
      block[offset + 1] = static_cast<std::byte>(half >> 8);
    }
    if (type == TensorType::kIQ1_M) tests::put_iq1_m_factor(block, any_half(random));
    if (type == TensorType::kMXFP4 || type == TensorType::kNVFP4) {
      for (const std::size_t offset : tests::factor_bytes(type))
        block[offset] = static_cast<std::byte>(random.below(256));
    }
  }
  return bytes;
}

// Usual ones; blocks whose values are all as large as they can be, with signs at random or all the same, as
// sums of products are largest; tiny ones; any bits at all.
std::vector<float> make_activations(Generator& random, std::size_t count) {
  auto x = tests::activations(random, count);
  const uint32_t kind = random.below(8);
  if (kind >= 4) return x;
  for (std::size_t i = 0; i < count; ++i) {
    if (kind == 0) x[i] = x[i] < 0 ? -3.0f : 3.0f;
    if (kind == 1) x[i] *= 0x1p-90f;
    if (kind == 3) x[i] = i / 32 % 4 < 2 ? 3.0f : -3.0f;
    if (kind == 2 && random.below(64) == 0) x[i] = std::bit_cast<float>(static_cast<uint32_t>(random.next()));
  }
  return x;
}

uint32_t bits(float x) { return std::isnan(x) ? 0x7fc00000u : std::bit_cast<uint32_t>(x); }
uint32_t bits_but_zero(float x) { return x == 0 ? 0 : bits(x); }

class ProductFuzz : public testing::Test {
 protected:
  struct Case {
    TensorType type;
    uint32_t rows, cols, tokens, row_begin, row_end;
    float scale;
  };

  // Calls check(random, type, tokens) for all types and numbers of tokens, round by round.
  template <class Check>
  void for_rounds(Check check) {
    const auto number_of = [](const char* name) {
      const char* value = std::getenv(name);
      return value == nullptr ? uint64_t{0} : std::strtoull(value, nullptr, 10);
    };
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(number_of("STRATA_FUZZ_SECONDS"));
    const uint64_t first = number_of("STRATA_FUZZ_ROUND");
    for (uint64_t round = first; round < first + kRounds || std::chrono::steady_clock::now() < deadline;
         ++round) {
      SCOPED_TRACE(fmt::format("STRATA_FUZZ_ROUND={}", round));
      for (const TensorType type : tests::all_types()) {
        SCOPED_TRACE(gguf::tensor_type_info(type).name);
        for (const uint32_t tokens : kTokenCounts) {
          Generator random(round * 100000 + static_cast<uint64_t>(type) * 100 + tokens);
          check(random, type, tokens);
          if (HasFailure()) return;
        }
      }
    }
  }

  static Case random_case(Generator& random, TensorType type, uint32_t tokens) {
    Case c{.type = type,
           .rows = one_of(random, kRowCounts),
           .cols = one_of(random, kColumns),
           .tokens = tokens,
           .row_begin = 0,
           .row_end = 0,
           .scale = random.below(3) == 0 ? 0.75f : 1.0f};
    while (c.cols % gguf::tensor_type_info(type).block_values != 0) c.cols = one_of(random, kColumns);
    c.row_end = c.rows;
    if (random.below(2) == 0) {
      c.row_begin = random.below(c.rows);
      c.row_end = c.row_begin + 1 + random.below(c.rows - c.row_begin);
    }
    return c;
  }

  // Copies to memory that ends (or begins) at a guard.
  static const std::byte* place(Generator& random, GuardedMemory& memory, const void* data,
                                std::size_t bytes) {
    std::byte* at = random.below(4) == 0 ? memory.at_the_start() : memory.at_the_end(bytes);
    std::memcpy(at, data, bytes);
    return at;
  }

  // Runs `product` on c and compares every value of y, also those that must not be touched, with
  // expected[token][row].
  static void expect_product(void (*product)(const ProductArgs&), const Case& c, ProductArgs args,
                             const std::vector<float>& expected) {
    constexpr float kUntouched = -77.25f;
    std::vector<float> y(std::size_t{c.tokens} * c.rows, kUntouched);
    std::vector<float*> out;
    for (std::size_t t = 0; t < c.tokens; ++t) out.push_back(y.data() + t * c.rows);
    args.y = out.data();
    product(args);
    for (std::size_t t = 0; t < c.tokens; ++t) {
      for (std::size_t row = 0; row < c.rows; ++row) {
        const bool ours = row >= c.row_begin && row < c.row_end;
        ASSERT_EQ(bits(y[t * c.rows + row]), bits(ours ? expected[t * c.rows + row] : kUntouched))
            << fmt::format("row {} of {}, {}..{} of {} rows, {} columns, token {} of {}", row, c.rows,
                           c.row_begin, c.row_end, c.rows, c.cols, t, c.tokens);
      }
    }
  }

  GuardedMemory weights_{std::size_t{kRowsMax} * kColsMax * sizeof(float)};
  GuardedMemory activations_{std::size_t{kTokensMax} * kColsMax * sizeof(float)};
};

TEST_F(ProductFuzz, EveryKernelGivesTheBitsOfTheReference) {
  for_rounds([&](Generator& random, TensorType type, uint32_t tokens) {
    const Case c = random_case(random, type, tokens);
    const auto bytes = make_weights(random, type, c.rows, c.cols);
    const auto x = make_activations(random, std::size_t{tokens} * c.cols);
    const std::size_t row_bytes = bytes.size() / c.rows;
    ProductArgs args{.weights = place(random, weights_, bytes.data(), bytes.size()),
                     .row_bytes = row_bytes,
                     .cols = c.cols,
                     .scale = c.scale,
                     .row_begin = c.row_begin,
                     .row_end = c.row_end,
                     .tokens = tokens,
                     .q8 = nullptr,
                     .f32 = nullptr,
                     .y = nullptr,
                     .next = bytes};

    std::vector<float> expected(std::size_t{tokens} * c.rows);
    std::vector<Q8Row> q8;
    std::vector<const float*> f32;
    if (is_quantized(type)) {
      const std::size_t stored_bytes = q8_row_bytes(c.cols);
      std::vector<std::byte> stored(tokens * stored_bytes);
      std::vector<std::vector<reference::Q8Block>> blocks;
      for (std::size_t t = 0; t < tokens; ++t) {
        quantize_q8({x.data() + t * c.cols, c.cols}, stored.data() + t * stored_bytes);
        blocks.push_back(reference::quantize(x.data() + t * c.cols, c.cols));
      }
      const std::byte* at = place(random, activations_, stored.data(), stored.size());
      for (std::size_t t = 0; t < tokens; ++t) q8.push_back(q8_row_view(at + t * stored_bytes, c.cols));
      args.q8 = q8.data();
      for (uint32_t row = c.row_begin; row < c.row_end; ++row) {
        const auto units = reference::units(type, bytes.data() + row * row_bytes, c.cols);
        for (std::size_t t = 0; t < tokens; ++t)
          expected[t * c.rows + row] = reference::product(units, blocks[t], c.scale);
      }
    } else {
      const std::byte* at = place(random, activations_, x.data(), x.size() * sizeof(float));
      for (std::size_t t = 0; t < tokens; ++t) f32.push_back(reinterpret_cast<const float*>(at) + t * c.cols);
      args.f32 = f32.data();
      for (uint32_t row = c.row_begin; row < c.row_end; ++row) {
        for (std::size_t t = 0; t < tokens; ++t) {
          expected[t * c.rows + row] = reference::product(type, bytes.data() + row * row_bytes,
                                                          x.data() + t * c.cols, c.cols, c.scale);
        }
      }
    }
    for (const Kernels& variant : available_kernels()) {
      SCOPED_TRACE(variant.name);
      const TypeKernels& kernel = variant.of(type);
      expect_product(args.q8 != nullptr ? kernel.product_q8 : kernel.product_f32, c, args, expected);
    }
  });
}

// Dequantized weights: the values, and under "numerics: exact" their products.
TEST_F(ProductFuzz, EveryKernelDequantizesAsTheReferenceDoes) {
  for_rounds([&](Generator& random, TensorType type, uint32_t tokens) {
    if (!is_quantized(type) || tokens > 17) return;
    Case c = random_case(random, type, tokens);
    const auto bytes = make_weights(random, type, c.rows, c.cols);
    const auto x = make_activations(random, std::size_t{tokens} * c.cols);
    const std::size_t row_bytes = bytes.size() / c.rows;
    const std::byte* at = place(random, weights_, bytes.data(), bytes.size());
    const std::byte* x_at = place(random, activations_, x.data(), x.size() * sizeof(float));
    std::vector<const float*> f32;
    for (std::size_t t = 0; t < tokens; ++t) f32.push_back(reinterpret_cast<const float*>(x_at) + t * c.cols);

    std::vector<float> expected(std::size_t{tokens} * c.rows);
    for (uint32_t row = c.row_begin; row < c.row_end; ++row) {
      std::vector<float> values;
      for (const reference::Unit& unit : reference::units(type, bytes.data() + row * row_bytes, c.cols)) {
        for (int i = 0; i < 32; ++i) values.push_back(reference::dequantized(unit, i));
      }
      for (const Kernels& variant : available_kernels()) {
        std::vector<float> got(c.cols);
        variant.of(type).dequantize(at + row * row_bytes, got.data(), c.cols);
        for (uint32_t i = 0; i < c.cols; ++i)
          ASSERT_EQ(bits_but_zero(got[i]), bits_but_zero(values[i])) << variant.name << " value " << i;
      }
      for (std::size_t t = 0; t < tokens; ++t)
        expected[t * c.rows + row] = reference::dot(values.data(), f32[t], c.cols) * c.scale;
    }
    const ProductArgs args{.weights = at,
                           .row_bytes = row_bytes,
                           .cols = c.cols,
                           .scale = c.scale,
                           .row_begin = c.row_begin,
                           .row_end = c.row_end,
                           .tokens = tokens,
                           .q8 = nullptr,
                           .f32 = f32.data(),
                           .y = nullptr,
                           .next = {}};
    for (const Kernels& variant : available_kernels()) {
      SCOPED_TRACE(variant.name);
      expect_product(variant.of(type).product_f32, c, args, expected);
    }
  });
}

}  // namespace
}  // namespace strata::quant
