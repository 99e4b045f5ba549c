#pragma once
// Finds the control and user-defined tokens in text of the template: longest match at the earliest position.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

class SpecialTokens {
 public:
  // The spelling must outlive this object. An empty spelling is ignored; of equal spellings the first counts.
  void add(std::string_view spelling, int32_t id);

  struct Found {
    std::size_t begin = 0;
    std::size_t end = 0;
    int32_t id = 0;
  };
  std::optional<Found> find(std::string_view text, std::size_t begin, std::size_t end) const;

  // The id spelled exactly so, or -1.
  int32_t id_of(std::string_view spelling) const;

 private:
  struct Entry {
    std::string_view spelling;
    int32_t id;
  };
  std::array<std::vector<Entry>, 256> by_first_byte_;  // each list from the longest to the shortest
};

}  // namespace strata::tokenizer
