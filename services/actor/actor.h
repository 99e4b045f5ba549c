#pragma once
// Actors: an object with a mailbox whose messages are handled one after another, never at the same time. No
// locks are shared with others. In a process they run on Asio strands; in tests on a virtual clock without
// threads, one message at a time.
//
//   class Residency : public Actor { void on(UsageSeen m); void on(Landed m); };
//   tell(residency, UsageSeen{...});           // from any thread
//   tell_after(residency, 50ms, Tick{});        // later
//
// An actor is owned by shared_ptr; messages to a dead actor are dropped.

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace strata::actor {

using Clock = std::chrono::steady_clock;

// Runs what is posted one by one, in order.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual void post(std::function<void()> work) = 0;
  virtual void post_after(Clock::duration delay, std::function<void()> work) = 0;
  virtual Clock::time_point now() const = 0;
};

// Threads that serve strands: ActorSystem::make_executor() gives each actor its own.
// (services/actor/actor_system.h)

class Actor : public std::enable_shared_from_this<Actor> {
 public:
  explicit Actor(std::shared_ptr<Executor> executor) : executor_(std::move(executor)) {}
  virtual ~Actor() = default;
  Executor& executor() { return *executor_; }

 private:
  std::shared_ptr<Executor> executor_;
};

// Calls target->on(message) in the target's mailbox.
template <class Target, class Message>
void tell(const std::shared_ptr<Target>& target, Message message) {
  target->executor().post([weak = std::weak_ptr<Target>(target), message = std::move(message)]() mutable {
    if (auto alive = weak.lock()) alive->on(std::move(message));
  });
}

template <class Target, class Message>
void tell_after(const std::shared_ptr<Target>& target, Clock::duration delay, Message message) {
  target->executor().post_after(
      delay, [weak = std::weak_ptr<Target>(target), message = std::move(message)]() mutable {
        if (auto alive = weak.lock()) alive->on(std::move(message));
      });
}

}  // namespace strata::actor
