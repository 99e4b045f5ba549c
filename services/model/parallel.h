#pragma once
// Splits index ranges over the host device's threads. The window loop is thread 0 and takes part.

#include <cstdint>
#include <functional>
#include <memory>

namespace strata::model {

class Parallel {
 public:
  // threads >= 1; 1 starts none. Workers wait by yielding for a short while after each job, then sleep.
  explicit Parallel(uint32_t threads);
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  uint32_t threads() const;
  // Calls body(begin, end) over disjoint pieces of [0, count), each at least `grain` long (but the last); returns when all are done.
  void run(uint32_t count, uint32_t grain, const std::function<void(uint32_t begin, uint32_t end)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::model
