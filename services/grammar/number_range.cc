#include "services/grammar/number_range.h"

#include <algorithm>
#include <limits>
#include <string>

namespace strata::grammar {
namespace {

constexpr uint32_t kFractionDigitsMax = 16;

NodeId digit(Rules& rules, char first, char last) {
  return rules.chars(CodePoints({{static_cast<char32_t>(first), static_cast<char32_t>(last)}}));
}
NodeId digits(Rules& rules, uint32_t min, uint32_t max) {
  return rules.repeat(digit(rules, '0', '9'), min, max);
}

// Digit strings of one length between two such.
NodeId between(Rules& rules, std::string_view low, std::string_view high) {
  if (low.empty()) return rules.empty();
  const auto count = static_cast<uint32_t>(low.size());
  if (low.find_first_not_of('0') == std::string_view::npos &&
      high.find_first_not_of('9') == std::string_view::npos) {
    return digits(rules, count, count);
  }
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) {
    return rules.sequence({rules.bytes(low.substr(0, 1)), between(rules, low_rest, high_rest)});
  }
  const std::string nines(low_rest.size(), '9'), zeros(low_rest.size(), '0');
  std::vector<NodeId> choices = {
      rules.sequence({rules.bytes(low.substr(0, 1)), between(rules, low_rest, nines)})};
  if (low[0] + 1 < high[0]) {
    choices.push_back(
        rules.sequence({digit(rules, static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                        digits(rules, count - 1, count - 1)}));
  }
  choices.push_back(rules.sequence({rules.bytes(high.substr(0, 1)), between(rules, zeros, high_rest)}));
  return rules.choice(std::move(choices));
}

// Numbers without leading zeros between two such: by their number of digits.
NodeId whole_between(Rules& rules, const std::string& low, const std::string& high) {
  std::vector<NodeId> choices;
  for (std::size_t count = low.size(); count <= high.size(); ++count) {
    const std::string first = count == 1 ? "0" : fmt::format("1{}", std::string(count - 1, '0'));
    choices.push_back(between(rules, count == low.size() ? low : first,
                              count == high.size() ? high : std::string(count, '9')));
  }
  return rules.choice(std::move(choices));
}

uint64_t magnitude(int64_t value) {
  return value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

NodeId any_fraction(Rules& rules) {
  return rules.optional(rules.sequence({rules.bytes("."), digits(rules, 1, kFractionDigitsMax)}));
}

// A fraction above zero.
NodeId some_fraction(Rules& rules) {
  return rules.sequence({rules.bytes("."), rules.repeat(rules.bytes("0"), 0, kFractionDigitsMax - 1),
                         digit(rules, '1', '9'), digits(rules, 0, kFractionDigitsMax - 1)});
}

NodeId no_fraction(Rules& rules) {
  return rules.optional(
      rules.sequence({rules.bytes("."), rules.repeat(rules.bytes("0"), 1, kFractionDigitsMax)}));
}

// Decimals without a sign between two whole numbers.
NodeId decimals_between(Rules& rules, const NumberBound& low, const NumberBound& high) {
  const auto whole = [&](int64_t value) { return rules.bytes(std::to_string(value)); };
  std::vector<NodeId> choices;
  if (low.value == high.value) {
    if (!low.exclusive && !high.exclusive)
      choices.push_back(rules.sequence({whole(low.value), no_fraction(rules)}));
    return rules.choice(std::move(choices));
  }
  if (low.value > high.value) return rules.choice({});
  choices.push_back(
      rules.sequence({whole(low.value), low.exclusive ? some_fraction(rules) : any_fraction(rules)}));
  if (low.value + 1 < high.value) {
    choices.push_back(
        rules.sequence({whole_between(rules, std::to_string(low.value + 1), std::to_string(high.value - 1)),
                        any_fraction(rules)}));
  }
  if (!high.exclusive) choices.push_back(rules.sequence({whole(high.value), no_fraction(rules)}));
  return rules.choice(std::move(choices));
}

}  // namespace

NodeId add_integer_range(Rules& rules, std::optional<int64_t> min, std::optional<int64_t> max) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  const int64_t low = min ? *min : max && *max < -kIntegerDefaultMax ? kMin : -kIntegerDefaultMax;
  const int64_t high = max ? *max : min && *min > kIntegerDefaultMax ? kMax : kIntegerDefaultMax;
  if (low > high) return rules.choice({});
  std::vector<NodeId> choices;
  if (low < 0) {
    const uint64_t nearest = high < 0 ? magnitude(high) : 1;
    choices.push_back(rules.sequence(
        {rules.bytes("-"), whole_between(rules, std::to_string(nearest), std::to_string(magnitude(low)))}));
  }
  if (high >= 0) {
    choices.push_back(whole_between(rules, std::to_string(std::max<int64_t>(low, 0)), std::to_string(high)));
  }
  return rules.choice(std::move(choices));
}

NodeId add_number_range(Rules& rules, std::optional<NumberBound> min, std::optional<NumberBound> max) {
  const NumberBound low = min.value_or(NumberBound{-kIntegerDefaultMax});
  const NumberBound high = max.value_or(NumberBound{kIntegerDefaultMax});
  std::vector<NodeId> choices;
  if (low.value < 0) {
    // By magnitude, so the bounds change places. Zero itself is written without a sign.
    const NumberBound nearest =
        high.value < 0 ? NumberBound{-high.value, high.exclusive} : NumberBound{0, true};
    choices.push_back(
        rules.sequence({rules.bytes("-"), decimals_between(rules, nearest, {-low.value, low.exclusive})}));
  }
  if (high.value >= 0) choices.push_back(decimals_between(rules, low.value < 0 ? NumberBound{0} : low, high));
  return rules.choice(std::move(choices));
}

}  // namespace strata::grammar
