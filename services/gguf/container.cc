#include "services/gguf/container.h"

#include <algorithm>

#include "services/gguf/byte_cursor.h"

namespace strata::gguf {
namespace {

constexpr uint64_t kHeaderBytes = 24;
constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
// The least that a key with its value (an empty u8) and a tensor info (no name, no dimensions) take.
constexpr uint64_t kPairBytesMin = 14;
constexpr uint64_t kInfoBytesMin = 24;
// The largest published models have some thousands of both.
constexpr uint64_t kItemsMax = uint64_t{1} << 24;

struct Counts {
  uint64_t tensors = 0;
  uint64_t pairs = 0;
};

Status check_version(const ByteCursor& cursor, uint32_t version) {
  if ((version & 0xFFFF) == 0 && version != 0) {
    return cursor.error(
        4, fmt::format("version reads as 0x{:08x}: the file is big-endian, expected a little-endian one",
                       version));
  }
  if (version != 2 && version != 3)
    return cursor.error(4, fmt::format("version is {}, expected 2 or 3", version));
  return {};
}

Result<Counts> read_header(ByteCursor& cursor, Container& container) {
  if (cursor.left() < kHeaderBytes) {
    return cursor.error(
        0, fmt::format("the file has {} bytes, expected at least {}", cursor.left(), kHeaderBytes));
  }
  TRY(const uint32_t magic, cursor.number<uint32_t>("magic"));
  if (magic != kMagic)
    return cursor.error(
        0, fmt::format("no GGUF file: magic is 0x{:08x}, expected 0x{:08x} (\"GGUF\")", magic, kMagic));
  TRY(container.version, cursor.number<uint32_t>("version"));
  TRY_OK(check_version(cursor, container.version));
  TRY(const uint64_t tensors, cursor.number<uint64_t>("tensor count"));
  TRY(const uint64_t pairs, cursor.number<uint64_t>("metadata count"));
  const uint64_t tensors_max = std::min(cursor.left() / kInfoBytesMin, kItemsMax);
  if (tensors > tensors_max) {
    return cursor.error(8, fmt::format("tensor count is {}, expected at most {} in a file of {} bytes",
                                       tensors, tensors_max, container.bytes.size()));
  }
  const uint64_t pairs_max = std::min((cursor.left() - tensors * kInfoBytesMin) / kPairBytesMin, kItemsMax);
  if (pairs > pairs_max) {
    return cursor.error(
        16, fmt::format("metadata count is {}, expected at most {} in a file of {} bytes with {} tensors",
                        pairs, pairs_max, container.bytes.size(), tensors));
  }
  return Counts{tensors, pairs};
}

}  // namespace

Result<Container> parse_container(std::span<const std::byte> bytes, const std::string& name) {
  Container container;
  container.bytes = bytes;
  ByteCursor cursor(bytes, name);
  TRY(const Counts counts, read_header(cursor, container));
  TRY_OK(read_metadata(cursor, counts.pairs, container));
  TRY_OK(read_tensor_table(cursor, counts.tensors, container));
  TRY_OK(place_tensors(cursor, container));
  return container;
}

}  // namespace strata::gguf
