#include "services/model/record_checksum.h"

#include <xxhash.h>

namespace strata::model {
namespace {

// `bytes_of`: where the bytes of a part lie.
template <class BytesOf>
uint64_t checksum(const LayerExperts& layer, uint32_t expert, BytesOf bytes_of) {
  // Chained by the seed: a streaming state would be 576 bytes of its own for three parts.
  uint64_t sum = 0;
  for (const RecordPart& part : layer.record_parts(expert))
    sum = XXH3_64bits_withSeed(bytes_of(part), part.bytes.size(), sum);
  return sum;
}

}  // namespace

bool verifies_records(std::string_view setting) {
#ifdef NDEBUG
  return setting == "on";
#else
  return setting != "off";
#endif
}

uint64_t source_checksum(const LayerExperts& layer, uint32_t expert) {
  return checksum(layer, expert, [](const RecordPart& part) { return part.bytes.data(); });
}

uint64_t record_checksum(const LayerExperts& layer, uint32_t expert, const std::byte* record) {
  return checksum(layer, expert, [record](const RecordPart& part) { return record + part.offset; });
}

}  // namespace strata::model
