#include "gpu-worker/cuda/emulation/fiber.h"

#include <memory>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace strata::gpu_worker::cuda::emulation {

// Only touched pages cost memory; frames under sanitizers are several times as large as without.
constexpr std::size_t kStackBytes = 256 * 1024;

Fiber::Fiber(Work work, void* argument) : work_(work), argument_(argument) {
  boost::context::protected_fixedsize_stack stacks(kStackBytes);
  stack_ = stacks.allocate();
#ifdef __SANITIZE_THREAD__
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
  other_ =
      boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack_.sp, stack_.size, stack_),
                            stacks, [this](boost::context::fiber&& owner) {
                              other_ = std::move(owner);
                              arrived_in_fiber();
                              while (!ends_) {
                                work_(argument_);
                                suspend();
                              }
#ifdef __SANITIZE_ADDRESS__
                              __sanitizer_start_switch_fiber(nullptr, owner_stack_, owner_stack_bytes_);
#endif
#ifdef __SANITIZE_THREAD__
                              __tsan_switch_to_fiber(tsan_owner_, 0);
#endif
                              return std::move(other_);
                            });
}

Fiber::~Fiber() {
  ends_ = true;
  resume();
#ifdef __SANITIZE_THREAD__
  __tsan_destroy_fiber(tsan_fiber_);
#endif
}

void Fiber::resume() {
#ifdef __SANITIZE_ADDRESS__
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
#endif
#ifdef __SANITIZE_THREAD__
  tsan_owner_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_fiber_, 0);
#endif
  other_ = std::move(other_).resume();
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&owner_fake_stack_, owner_stack_, owner_stack_bytes_);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(tsan_owner_, 0);
#endif
  other_ = std::move(other_).resume();
  arrived_in_fiber();
}

void Fiber::arrived_in_fiber() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(owner_fake_stack_, &owner_stack_, &owner_stack_bytes_);
#endif
}

}  // namespace strata::gpu_worker::cuda::emulation
