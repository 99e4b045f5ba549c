#pragma once
// Numbers between bounds as expressions: the digits decide, one after the other.

#include <cstdint>
#include <optional>

#include "services/grammar/rules.h"

namespace strata::grammar {

// Without a bound an integer has at most 16 digits, what clients that read doubles can hold.
inline constexpr int64_t kIntegerDefaultMax = 9'999'999'999'999'999;

// Integers from min to max in decimal, without leading zeros or plus; both included. A bound that is left out
// is kIntegerDefaultMax (or its negative), or that of int64 if the other bound lies beyond. Nothing if min >
// max.
NodeId add_integer_range(Rules& rules, std::optional<int64_t> min, std::optional<int64_t> max);

// A bound of decimals. Whole numbers only, below kIntegerDefaultMax in magnitude.
struct NumberBound {
  int64_t value = 0;
  bool exclusive = false;
};

// Decimals between the bounds, without exponent, with a few tens of digits behind the point at most.
// A bound that is left out is kIntegerDefaultMax (or its negative).
NodeId add_number_range(Rules& rules, std::optional<NumberBound> min, std::optional<NumberBound> max);

}  // namespace strata::grammar
