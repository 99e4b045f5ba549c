#pragma once
// How many exchanges may begin: at most so many per window, and so many bytes per second. Used alike by the
// simulator and the cache manager. Pure: windows and time are what the caller says.
//
// What is not used lapses, so that a quiet phase does not save up for a burst; only fractions are carried
// over: a third of an exchange per window is one in every third window.

#include <cstdint>
#include <limits>

namespace strata::residency {

struct BudgetLimits {
  double exchanges_per_window = std::numeric_limits<double>::infinity();  // from 0
  double bytes_per_second = std::numeric_limits<double>::infinity();      // from 0
};

class ExchangeBudget {
 public:
  // expert_bytes: of the largest expert, from 1.
  ExchangeBudget(BudgetLimits limits, uint64_t expert_bytes) : limits_(limits), expert_bytes_(expert_bytes) {}

  // From the next passed() on.
  void change(BudgetLimits limits) { limits_ = limits; }
  const BudgetLimits& limits() const { return limits_; }

  // Windows that have run and seconds that have passed since the last call.
  void passed(uint64_t windows, double seconds);

  // How many exchanges of the largest expert may begin now, at most `bound`.
  uint32_t available(uint32_t bound) const;

  // So many exchanges have begun. Bytes beyond the budget are a debt that later seconds pay.
  void spend(uint32_t exchanges, uint64_t bytes);

 private:
  BudgetLimits limits_;
  uint64_t expert_bytes_;
  double exchanges_ = 0;
  double bytes_ = 0;
};

}  // namespace strata::residency
