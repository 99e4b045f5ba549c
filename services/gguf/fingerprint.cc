// GgufFile::fingerprint(): what "the same model" means, without reading 100 GB.

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>

#include "services/base/check.h"
#include "services/gguf/gguf_file_impl.h"

namespace strata::gguf {
namespace {

constexpr uint64_t kSampleBytes = 64 << 10;

// Begin, middle and end of the data; all of it when it is not longer than the three together.
std::array<std::span<const std::byte>, 3> samples(std::span<const std::byte> data) {
  if (data.size() <= 3 * kSampleBytes) return {data, {}, {}};
  const uint64_t middle = (data.size() - kSampleBytes) / 2;
  return {data.first(kSampleBytes), data.subspan(middle, kSampleBytes), data.last(kSampleBytes)};
}

}  // namespace

// The padding before the data and whatever follows the last tensor do not count: they differ between writers.
std::string GgufFile::fingerprint() const {
  XXH3_state_t state;
  CHECK(XXH3_128bits_reset(&state) == XXH_OK);
  auto add = [&state](std::span<const std::byte> bytes) {
    CHECK(XXH3_128bits_update(&state, bytes.data(), bytes.size()) == XXH_OK);
  };
  for (const Shard& shard : impl_->shards) {
    const Container& file = shard.container;
    add(file.bytes.first(file.table_end));
    for (const auto sample : samples(file.bytes.subspan(file.data_offset, file.data_end - file.data_offset)))
      add(sample);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace strata::gguf
