#include "services/tokenizer/special_tokens.h"

#include <algorithm>

namespace strata::tokenizer {

void SpecialTokens::add(std::string_view spelling, int32_t id) {
  if (spelling.empty() || id_of(spelling) >= 0) return;
  auto& list = by_first_byte_[static_cast<uint8_t>(spelling[0])];
  const auto shorter = std::find_if(
      list.begin(), list.end(), [&](const Entry& entry) { return entry.spelling.size() < spelling.size(); });
  list.insert(shorter, {spelling, id});
}

std::optional<SpecialTokens::Found> SpecialTokens::find(std::string_view text, std::size_t begin,
                                                        std::size_t end) const {
  for (std::size_t at = begin; at < end; ++at) {
    const std::string_view rest = text.substr(at, end - at);
    for (const Entry& entry : by_first_byte_[static_cast<uint8_t>(rest[0])]) {
      if (rest.starts_with(entry.spelling)) return Found{at, at + entry.spelling.size(), entry.id};
    }
  }
  return std::nullopt;
}

int32_t SpecialTokens::id_of(std::string_view spelling) const {
  if (spelling.empty()) return -1;
  for (const Entry& entry : by_first_byte_[static_cast<uint8_t>(spelling[0])]) {
    if (entry.spelling == spelling) return entry.id;
  }
  return -1;
}

}  // namespace strata::tokenizer
