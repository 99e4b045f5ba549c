#pragma once
// Everything that leaves as text is whole UTF-8 (rule H10).

#include <cstddef>
#include <string>
#include <string_view>

namespace strata::gateway {

// What is not UTF-8 in it becomes U+FFFD, one for each maximal wrong piece.
std::string to_valid_utf8(std::string_view bytes);
std::size_t count_characters(std::string_view utf8);

}  // namespace strata::gateway
