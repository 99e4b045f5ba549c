#include "services/config/nearest.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::config {

namespace {

// Edit distance with swaps of neighbours (optimal string alignment), three rows at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kWordLengthMax = 200;  // the work is quadratic, and nobody means a setting with more
  if (word.size() > kWordLengthMax) return "";
  std::size_t best = std::max<std::size_t>(2, word.size() / 3) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    if (std::size_t distance = edit_distance(word, candidate); distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  std::string nearest = nearest_name(word, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

}  // namespace strata::config
