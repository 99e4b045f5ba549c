#pragma once
// Splits index ranges over the host device's threads. The window loop is thread 0 and takes part.

#include <cstdint>
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
  // Calls body(begin, end) over disjoint pieces of [0, count), each a multiple of `grain` long (but the
  // last); returns when all are done. Which thread gets which piece is not fixed. Not to be nested.
  template <class Body>
  void run(uint32_t count, uint32_t grain, const Body& body) {
    run_pieces(count, grain, {.body = &body, .call = [](const void* target, uint32_t begin, uint32_t end) {
                                (*static_cast<const Body*>(target))(begin, end);
                              }});
  }

 private:
  // A borrowed callable; std::function would allocate for every captured body.
  struct Job {
    const void* body = nullptr;
    void (*call)(const void* body, uint32_t begin, uint32_t end) = nullptr;
  };
  void run_pieces(uint32_t count, uint32_t grain, const Job& job);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::model
