#pragma once
// A stack of its own for one thread of a block. The OS thread that owns the fiber resumes it, the fiber
// suspends itself.

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>

namespace strata::gpu_worker::cuda::emulation {

class Fiber {
 public:
  using Work = void (*)(void* argument);

  // Each resume of a fiber at rest runs `work` once, until it suspends or returns.
  Fiber(Work work, void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();  // only at rest

  void resume();
  void suspend();

 private:
  void arrived_in_fiber();

  Work work_;
  void* argument_;
  bool ends_ = false;
  boost::context::stack_context stack_;
  boost::context::fiber other_;  // the fiber while its owner runs, the owner while the fiber runs

  // For AddressSanitizer and ThreadSanitizer, who must know of every change of stacks.
  void* owner_fake_stack_ = nullptr;
  const void* owner_stack_ = nullptr;
  std::size_t owner_stack_bytes_ = 0;
  void* tsan_owner_ = nullptr;
  void* tsan_fiber_ = nullptr;
};

}  // namespace strata::gpu_worker::cuda::emulation
