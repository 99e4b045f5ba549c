#pragma once
// The two worlds an actor can live in: real threads (ActorSystem) and a test's virtual time (VirtualWorld).

#include <cstdint>
#include <memory>

#include "services/actor/actor.h"

namespace strata::actor {

// A few threads serving one Asio context; every executor is a strand of it.
class ActorSystem {
 public:
  explicit ActorSystem(uint32_t threads);
  ~ActorSystem();  // stops and joins; messages not yet handled are dropped
  std::shared_ptr<Executor> make_executor();
  void stop();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Deterministic: nothing runs until it is asked for; time stands still in between.
class VirtualWorld {
 public:
  VirtualWorld();
  ~VirtualWorld();
  std::shared_ptr<Executor> make_executor();
  bool deliver_one();                      // the oldest message; false: none is due
  uint32_t deliver_all();                  // until nothing is due; returns how many
  void advance(Clock::duration duration);  // moves the clock, delivering timers on the way in order
  void spend(Clock::duration duration);    // moves the clock only, as a message that takes so long does

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace strata::actor
