// States through page-locked memory: every byte of every piece, and nothing beside it, whatever its
// alignment.

#include "gpu-worker/cuda/kept_states.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gpu-worker/cuda/device_buffer.h"

namespace strata::gpu_worker::cuda {
namespace {

using Bytes = std::vector<std::byte>;

class KeptStatesTest : public testing::Test {
 protected:
  static constexpr uint32_t kTokens = 200, kSlots = 2;

  // Units of 4,096 bytes, of 3, and of a block of 16 tokens; a fixed part of two and a half staged pieces.
  static StateLayout layout() {
    return StateLayout({{"delta.0", kStagedPieceBytes * 5 / 2 + 7, 0, 0},
                        {"keys.1", kTokens * 4096, 1, 4096},
                        {"scales.1", kTokens * 3, 1, 3},
                        {"block_keys.1", kTokens / 16 * 64, 16, 64}});
  }
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&windows_, cudaStreamNonBlocking), cudaSuccess);
    auto slots = DeviceBuffer<std::byte>::create(kSlots * layout().fixed_bytes());
    ASSERT_TRUE(slots.has_value());
    slots_ = std::move(*slots);
    auto kept = KeptStates::create(layout(), slots_.data(), kSlots, windows_);
    ASSERT_TRUE(kept.has_value()) << kept.error().message();
    kept_ = std::move(*kept);
    for (const StateArray& array : kept_.layout().arrays()) {
      auto memory = DeviceBuffer<std::byte>::create(array.bytes);
      ASSERT_TRUE(memory.has_value());
      memory_.push_back(std::move(*memory));
      arrays_.push_back(memory_.back().data());
    }
  }
  void TearDown() override { cudaStreamDestroy(windows_); }

  Bytes random_bytes(uint64_t count) {
    Bytes bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(1 + random_() % 255);
    return bytes;
  }
  void fill_arrays() {
    for (auto& memory : memory_) ASSERT_TRUE(memory.upload(random_bytes(memory.size())).ok());
  }
  std::vector<Bytes> downloaded() const {
    std::vector<Bytes> all;
    for (const auto& memory : memory_) all.push_back(memory.download().value());
    return all;
  }

  std::mt19937 random_{11};
  cudaStream_t windows_ = nullptr;
  DeviceBuffer<std::byte> slots_;
  KeptStates kept_;
  std::vector<DeviceBuffer<std::byte>> memory_;
  std::vector<std::byte*> arrays_;
};

TEST_F(KeptStatesTest, APageIsItsPiecesAndZeros) {
  fill_arrays();
  const std::vector<Bytes> held = downloaded();
  // A full one, one that ends within a block, and a full one again: nothing stays of the one before.
  for (const auto& [page, tokens] : {std::pair(0u, kTokens), std::pair(1u, 64u + 21u), std::pair(2u, kTokens),
                                     std::pair(3u, kTokens), std::pair(1u, kTokens)}) {
    Bytes expected(kept_.layout().page_bytes(), std::byte{0});
    for (const StateLayout::Piece& piece : kept_.layout().page_pieces(page, tokens))
      std::copy_n(held[piece.array].begin() + static_cast<std::ptrdiff_t>(piece.at), piece.bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(piece.offset));
    Bytes read(kept_.layout().page_bytes(), std::byte{0x5a});
    ASSERT_TRUE(kept_.read_page(arrays_, page, tokens, read).ok());
    EXPECT_TRUE(read == expected) << "page " << page << " of " << tokens << " tokens";
  }
}

TEST_F(KeptStatesTest, WritingAPageTouchesItsPiecesOnly) {
  fill_arrays();
  std::vector<Bytes> expected = downloaded();
  for (const auto& [page, tokens] : {std::pair(1u, kTokens), std::pair(2u, 128u + 5u)}) {
    const Bytes blob = random_bytes(kept_.layout().page_bytes());
    for (const StateLayout::Piece& piece : kept_.layout().page_pieces(page, tokens))
      std::copy_n(blob.begin() + static_cast<std::ptrdiff_t>(piece.offset), piece.bytes,
                  expected[piece.array].begin() + static_cast<std::ptrdiff_t>(piece.at));
    ASSERT_TRUE(kept_.write_page(arrays_, page, tokens, blob).ok());
    EXPECT_TRUE(downloaded() == expected) << "page " << page << " of " << tokens << " tokens";
  }
}

TEST_F(KeptStatesTest, TheFixedPartGoesThroughPieceByPiece) {
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const Bytes fixed = random_bytes(kept_.layout().fixed_bytes());
    ASSERT_TRUE(kept_.write_slot(slot, fixed).ok());
    Bytes read(fixed.size(), std::byte{0});
    ASSERT_TRUE(kept_.read_slot(slot, read).ok());
    EXPECT_TRUE(read == fixed) << "slot " << slot;
    // And a page in between, which takes the same memory.
    Bytes page(kept_.layout().page_bytes());
    ASSERT_TRUE(kept_.read_page(arrays_, 0, kTokens, page).ok());
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
