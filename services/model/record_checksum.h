#pragma once
// Checksums (XXH3, 64 bits) of experts, for proving that a slot holds what it should: of the three parts of a
// record, not of what lies between them.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "services/model/model_weights.h"

namespace strata::model {

// What the setting experts.verify_records means: on, off, or auto: in debug builds.
bool verifies_records(std::string_view setting);

uint64_t source_checksum(const LayerExperts& layer, uint32_t expert);  // as the mapped file has it
uint64_t record_checksum(const LayerExperts& layer, uint32_t expert, const std::byte* record);

}  // namespace strata::model
