#pragma once
// Finding items by name. Sorted, not hashed: a file can be made whose names all collide in a hash table.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::gguf {

template <class T, std::string_view T::* kName>
class NameIndex {
 public:
  NameIndex() = default;
  explicit NameIndex(std::span<const T> items) : order_(items.size()) {
    std::iota(order_.begin(), order_.end(), 0U);
    std::ranges::sort(order_, {}, [&](uint32_t i) { return std::pair(items[i].*kName, i); });
  }

  const T* find(std::span<const T> items, std::string_view name) const {
    auto found = std::ranges::lower_bound(order_, name, {}, [&](uint32_t i) { return items[i].*kName; });
    return found != order_.end() && items[*found].*kName == name ? &items[*found] : nullptr;
  }

  // The second of two items with one name.
  std::optional<uint32_t> first_duplicate(std::span<const T> items) const {
    std::optional<uint32_t> first;
    for (std::size_t i = 1; i < order_.size(); ++i) {
      if (items[order_[i - 1]].*kName != items[order_[i]].*kName) continue;
      first = std::min(first.value_or(order_[i]), order_[i]);
    }
    return first;
  }

 private:
  std::vector<uint32_t> order_;  // by name
};

}  // namespace strata::gguf
