#pragma once
// What of a model fits where: the part of `strata inspect` that helps to choose experts.slots.

#include <cstdint>
#include <string>
#include <vector>

#include "services/model/model_weights.h"

namespace strata::cli {

struct Placement {
  uint64_t expert_bytes_max = 0;  // the arena's slot size
  uint64_t experts = 0;           // over all trunk layers
  uint64_t experts_bytes = 0;     // of all records
  uint64_t ngram_bytes = 0;       // the n-gram table stays on disk
  uint64_t dense_bytes = 0;       // everything else of the trunk and the head
  struct Arena {
    uint32_t percent = 0;
    uint64_t slots = 0;
    uint64_t bytes = 0;
  };
  std::vector<Arena> arenas;  // 10, 25, 50, 100 %
};

Placement place(const model::ModelWeights& weights);
std::string placement_text(const Placement& placement);
std::string placement_json(const Placement& placement);  // one object

}  // namespace strata::cli
