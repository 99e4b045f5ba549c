#pragma once
// "Did you mean": the known word that a mistyped one most likely stands for.

#include <string>
#include <string_view>
#include <vector>

namespace strata::config {

// The candidate with the fewest edits (insert, delete, replace, swap of neighbours); "" when none is near
// enough to be meant.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);
// "; did you mean gateway.listen?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace strata::config
