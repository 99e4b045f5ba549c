// The fuzz target over mutations of the golden files, good and bad: the same ones in every run, for a few
// seconds at most.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>

#include "tests/support/test_data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kSeedBytesMax = 8192;
constexpr int kMutationsPerSeed = 1500;
constexpr std::chrono::seconds kDeadline{10};

using Bytes = std::vector<uint8_t>;
using Random = std::mt19937_64;

std::vector<Bytes> seeds() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(strata::tests::gguf_folder())) {
    if (entry.path().extension() == ".gguf" && entry.file_size() <= kSeedBytesMax)
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // folders list their files in any order
  std::vector<Bytes> all;
  for (const auto& path : paths) all.push_back(strata::tests::read_array<uint8_t>(path));
  return all;
}

void overwrite(Bytes& bytes, std::size_t at, uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width && at + i < bytes.size(); ++i)
    bytes[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

// Counts, lengths and offsets are what a parser trips over: most mutations put an extreme number somewhere.
void mutate(Bytes& bytes, const Bytes& other, Random& random) {
  constexpr uint64_t kExtremes[] = {
      0,          1,          2,          4,           9,          31,         32,
      255,        65535,      1U << 31,   0xFFFFFFFFU, 1ULL << 32, 1ULL << 40, (1ULL << 60) - 1,
      1ULL << 61, 1ULL << 62, 1ULL << 63, ~0ULL - 31,  ~0ULL};
  if (bytes.empty()) bytes.push_back(0);
  const std::size_t at = random() % bytes.size();
  switch (random() % 6) {
    case 0:
      bytes[at] ^= static_cast<uint8_t>(1U << random() % 8);
      break;
    case 1:
      overwrite(bytes, at, kExtremes[random() % std::size(kExtremes)], 8);
      break;
    case 2:
      overwrite(bytes, at, kExtremes[random() % std::size(kExtremes)], 4);
      break;
    case 3:
      bytes.resize(at);
      break;
    case 4:
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), random() % 16,
                   static_cast<uint8_t>(random()));
      break;
    default:
      // The tail of another file from the same position on.
      if (at < other.size())
        bytes.resize(at),
            bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
  }
}

TEST(GgufFuzzReplay, NoMutationOfAGoldenFileCrashesTheReader) {
  const std::vector<Bytes> all = seeds();
  ASSERT_FALSE(all.empty());
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  // Round by round over all seeds, so that a slow machine leaves out late rounds and not late files.
  for (int round = 0; round < kMutationsPerSeed && std::chrono::steady_clock::now() < deadline; ++round) {
    for (std::size_t seed = 0; seed < all.size(); ++seed) {
      Random random(static_cast<uint64_t>(round) * all.size() + seed);
      Bytes bytes = all[seed];
      for (uint64_t count = random() % 4; count-- > 0;) mutate(bytes, all[random() % all.size()], random);
      EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
    }
  }
}

}  // namespace
