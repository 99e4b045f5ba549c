#pragma once
// The n best of many, in one pass.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace strata::residency {

// Better(a, b): a is better than b, a strict weak order. Most items cost one comparison.
template <class Item, class Better>
class BoundedBest {
 public:
  BoundedBest(std::size_t count, Better better) : count_(count), better_(std::move(better)) {}

  void offer(const Item& item) {
    if (heap_.size() < count_) {
      heap_.push_back(item);
      std::push_heap(heap_.begin(), heap_.end(), better_);
    } else if (count_ > 0 && better_(item, heap_.front())) {  // the worst of the best is in front
      std::pop_heap(heap_.begin(), heap_.end(), better_);
      heap_.back() = item;
      std::push_heap(heap_.begin(), heap_.end(), better_);
    }
  }

  // When full, an item that is not better than this one need not be offered.
  bool full() const { return count_ > 0 && heap_.size() == count_; }
  const Item& worst() const { return heap_.front(); }

  std::vector<Item> take() {  // the best first
    std::sort_heap(heap_.begin(), heap_.end(), better_);
    return std::move(heap_);
  }

 private:
  std::size_t count_;
  Better better_;
  std::vector<Item> heap_;
};

}  // namespace strata::residency
