#pragma once
// A small world for tests of the snapshot store: states of a few kilobytes whose bytes follow from their
// tokens, as the real ones do, a clock that stands still until it is told to move, and free memory as a
// number.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "services/base/check.h"
#include "services/shm/segment.h"
#include "services/snapshot/snapshot_store.h"

namespace strata::snapshot {

inline constexpr uint32_t kTestPageTokens = 4;
inline constexpr uint64_t kTestFixedBytes = 5000;  // two units of memory
inline constexpr uint64_t kTestPageBytes = 3000;   // one unit
inline constexpr uint64_t kTestTailBytesPerToken = 700;

inline StateIdentity test_identity() {
  return {.model_fingerprint = "f1f2",
          .numerics = "reproducible",
          .kv_format = "float32",
          .layout_version = 1,
          .page_tokens = kTestPageTokens,
          .page_bytes = kTestPageBytes,
          .fixed_bytes = kTestFixedBytes,
          .parts = {{.name = "delta_net", .offset = 0, .bytes = 3000},
                    {.name = "convolution", .offset = 3008, .bytes = 1992}},
          .options = ""};
}

inline Hash128 test_namespace(uint64_t number = 1) { return {.high = 0x6e61, .low = number}; }

using TestTokens = std::vector<int32_t>;

// first, first + 1, ...: conversations with other `first` have nothing in common.
inline TestTokens test_tokens(uint32_t count, int32_t first = 100) {
  TestTokens tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = first + static_cast<int32_t>(i);
  return tokens;
}

// The bytes of a state's piece follow from the tokens that lead to it.
inline std::vector<std::byte> test_bytes(std::span<const int32_t> tokens, uint64_t salt, uint64_t size) {
  uint64_t state = checksum64(std::as_bytes(tokens)) ^ salt;
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}
inline std::vector<std::byte> test_fixed(std::span<const int32_t> tokens) {
  std::vector<std::byte> bytes = test_bytes(tokens, 1, kTestFixedBytes);
  std::fill(bytes.begin() + 3000, bytes.begin() + 3008, std::byte{});  // between the parts
  return bytes;
}
inline std::vector<std::byte> test_page(std::span<const int32_t> tokens, uint32_t page, uint32_t page_tokens,
                                        uint64_t size) {
  return test_bytes(tokens.first(page * kTestPageTokens + page_tokens), 2, size);
}
inline uint64_t test_tail_bytes(std::size_t tokens) {
  return tokens % kTestPageTokens * kTestTailBytesPerToken;
}

class StoreFixture : public testing::Test {
 protected:
  ~StoreFixture() override { shm::remove_stale_segments(run_); }

  StoreOptions options() {
    return {.identity = test_identity(),
            .seed = {std::byte{7}},
            .value = {},
            .evictions = {},
            .per_history_max = 0,
            .now_ms = [this] { return now_ms_; }};
  }
  Result<RamPool> pool(uint64_t budget_bytes, uint64_t floor_bytes = 0) {
    return RamPool::create({.name = shm::segment_name(run_, "snapshots", shm::random_instance_id()),
                            .budget_bytes = budget_bytes,
                            .floor_bytes = floor_bytes,
                            .available_bytes = [this] { return free_memory(); }});
  }
  // With a budget of so many units of memory.
  SnapshotStore& make(uint64_t units, uint64_t floor_bytes = 0) {
    return make(options(), units, floor_bytes);
  }
  SnapshotStore& make(const StoreOptions& store_options, uint64_t units, uint64_t floor_bytes = 0) {
    auto memory = pool(units * kExtentUnitBytes, floor_bytes);
    CHECK(memory.has_value(), "{}", memory.error().message());
    auto made = SnapshotStore::create(store_options, std::move(*memory));
    CHECK(made.has_value(), "{}", made.error().message());
    store_ = std::make_unique<SnapshotStore>(std::move(*made));
    return *store_;
  }

  StoreRequest request(const TestTokens& tokens, SnapshotKind kind = SnapshotKind::kTurn) const {
    return {.identity = store_->identity_digest(),
            .name_space = test_namespace(),
            .tokens = tokens,
            .generated = {},
            .kind = kind,
            .cost_seconds = 0.01 * static_cast<double>(tokens.size()),
            .tail_bytes = test_tail_bytes(tokens.size()),
            .owner = 1};
  }
  // Writes what belongs into the reserved extents, as a gpu-worker would.
  CopyChecksums fill(const Reservation& reservation, const TestTokens& tokens) const {
    CopyChecksums checksums;
    const auto fixed = test_fixed(tokens);
    put(reservation.fixed, fixed);
    checksums.parts = part_checksums(store_->identity(), fixed);
    for (const PageToCopy& page : reservation.pages) {
      const auto bytes = test_page(tokens, page.page_index, page.tokens, page.extent.bytes);
      put(page.extent, bytes);
      checksums.pages.push_back(checksum64(bytes));
    }
    return checksums;
  }
  Result<SnapshotInfo> store(const StoreRequest& wanted) {
    TRY(const Reservation reservation, store_->reserve(wanted));
    return store_->commit(reservation.ticket,
                          fill(reservation, TestTokens(wanted.tokens.begin(), wanted.tokens.end())));
  }
  Result<SnapshotInfo> store(const TestTokens& tokens, SnapshotKind kind = SnapshotKind::kTurn) {
    return store(request(tokens, kind));
  }
  // For tests where it must succeed.
  SnapshotId stored(const TestTokens& tokens, SnapshotKind kind = SnapshotKind::kTurn) {
    auto result = store(tokens, kind);
    CHECK(result.has_value(), "{}", result.error().message());
    now_ms_ += 1;
    return result->id;
  }
  // Opens it, compares every byte, releases it. "": all as it should be.
  std::string fault(const SnapshotId& id, const TestTokens& tokens) {
    auto open = store_->open(id, 1);
    if (!open) return open.error().message();
    std::string what = compare(*open, tokens);
    if (const Status verified = store_->verify(*open); !verified.ok()) what += verified.message();
    CHECK(store_->release(open->ticket).ok());
    return what;
  }
  std::string compare(const OpenSnapshot& open, const TestTokens& tokens) const {
    if (open.position != tokens.size()) return fmt::format("position {}", open.position);
    if (!equal(open.fixed, test_fixed(tokens))) return "fixed part";
    uint64_t covered = 0;
    for (const StoredPage& page : open.pages) {
      if (!equal(page.extent, test_page(tokens, page.page_index, page.tokens, page.extent.bytes)))
        return fmt::format("page {}", page.page_index);
      covered += page.tokens;
    }
    return covered == tokens.size() ? "" : fmt::format("pages with {} tokens", covered);
  }

  int64_t now_ms_ = 1'700'000'000'000;
  uint64_t available_bytes_ = uint64_t{1} << 40;  // free memory of the machine while the store is empty
  std::string run_ = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
  std::unique_ptr<SnapshotStore> store_;

 private:
  uint64_t free_memory() const {
    const uint64_t used = store_ ? store_->pool().used_bytes() : 0;
    return available_bytes_ > used ? available_bytes_ - used : 0;
  }
  void put(const Extent& extent, std::span<const std::byte> bytes) const {
    CHECK(extent.bytes == bytes.size());
    std::memcpy(store_->pool().bytes(extent).data(), bytes.data(), bytes.size());
  }
  bool equal(const Extent& extent, std::span<const std::byte> bytes) const {
    return extent.bytes == bytes.size() &&
           std::memcmp(store_->pool().bytes(extent).data(), bytes.data(), bytes.size()) == 0;
  }
};

}  // namespace strata::snapshot
