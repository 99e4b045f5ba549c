#include "services/residency/exchange_budget.h"

#include <algorithm>
#include <cmath>

namespace strata::residency {
namespace {

// Sums of fractions such as 1/12 must not miss a whole one by a rounding error.
constexpr double kRounding = 1e-9;

}  // namespace

void ExchangeBudget::passed(uint64_t windows, double seconds) {
  if (windows > 0) {
    const double left = std::isinf(exchanges_) ? 0 : exchanges_ + kRounding;
    exchanges_ = left - std::floor(left) + limits_.exchanges_per_window * static_cast<double>(windows);
  }
  if (std::isinf(limits_.bytes_per_second)) {
    bytes_ = limits_.bytes_per_second;
  } else {  // an expert's bytes are the fraction here; a debt is carried over in full
    bytes_ = std::min(bytes_, static_cast<double>(expert_bytes_)) + limits_.bytes_per_second * seconds;
  }
}

uint32_t ExchangeBudget::available(uint32_t bound) const {
  const double by_bytes = bytes_ / static_cast<double>(expert_bytes_);
  const double whole = std::floor(std::min(exchanges_, by_bytes) + kRounding);
  return static_cast<uint32_t>(std::clamp(whole, 0.0, static_cast<double>(bound)));
}

void ExchangeBudget::spend(uint32_t exchanges, uint64_t bytes) {
  exchanges_ -= exchanges;
  bytes_ -= static_cast<double>(bytes);
}

}  // namespace strata::residency
