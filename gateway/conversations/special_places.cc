#include "gateway/conversations/special_places.h"

#include <algorithm>

#include "services/base/check.h"

namespace strata::gateway {

std::vector<SpecialPlace> special_places(const tokenizer::Tokenizer& tokenizer,
                                         const tokenizer::MarkedText& text, std::span<const int32_t> tokens) {
  std::vector<SpecialPlace> places;
  const std::string_view bytes = text.text();
  auto run = text.runs().begin();
  std::size_t from = 0;  // behind the special token before
  for (uint32_t index = 0; index < tokens.size(); ++index) {
    if (!tokenizer.is_special(tokens[index])) continue;
    const std::string_view spelling = tokenizer.token_bytes(tokens[index]);
    std::size_t at = std::string_view::npos;
    for (; run != text.runs().end(); ++run) {
      if (run->origin != tokenizer::Origin::kTemplate || run->end <= from) continue;
      at = bytes.substr(0, run->end).find(spelling, std::max(run->begin, from));
      if (at != std::string_view::npos) break;
    }
    CHECK(at != std::string_view::npos, "token {} is not spelled in the text behind byte {}", index, from);
    from = at + spelling.size();
    places.push_back({.token = index, .begin = at, .end = from});
  }
  return places;
}

}  // namespace strata::gateway
