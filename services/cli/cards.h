#pragma once
// Graphics cards that people run large models on, and the memory that their driver reports.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"

namespace strata::cli {

struct Card {
  std::string name;
  uint64_t bytes = 0;  // as nvidia-smi shows it, which is a little less than what is printed on the box
};

std::span<const Card> known_cards();

// By name, whatever the case; "all": every one of them. kInvalidArgument names the nearest known one.
Result<std::vector<Card>> find_cards(std::span<const std::string> names);

}  // namespace strata::cli
