#include <gtest/gtest.h>

#include <vector>

#include "services/actor/actor_system.h"

namespace strata::actor {
namespace {

using namespace std::chrono_literals;

class Recorder : public Actor {
 public:
  using Actor::Actor;
  void on(int message) { seen.push_back(message); }
  std::vector<int> seen;
};

TEST(VirtualWorld, DoesNothingUntilAsked) {
  VirtualWorld world;
  auto recorder = std::make_shared<Recorder>(world.make_executor());
  tell(recorder, 1);
  tell(recorder, 2);
  EXPECT_TRUE(recorder->seen.empty());
  EXPECT_TRUE(world.deliver_one());
  EXPECT_EQ(recorder->seen, std::vector{1});
  EXPECT_EQ(world.deliver_all(), 1u);
  EXPECT_EQ(recorder->seen, (std::vector{1, 2}));
  EXPECT_FALSE(world.deliver_one());
}

TEST(VirtualWorld, DeliversTimersInOrderOfTimeAcrossActors) {
  VirtualWorld world;
  auto first = std::make_shared<Recorder>(world.make_executor());
  auto order = std::make_shared<std::vector<int>>();
  first->executor().post_after(30ms, [order] { order->push_back(30); });
  world.make_executor()->post_after(10ms, [order] { order->push_back(10); });
  EXPECT_EQ(world.deliver_all(), 0u);
  world.advance(20ms);
  EXPECT_EQ(*order, std::vector{10});
  world.advance(10ms);
  EXPECT_EQ(*order, (std::vector{10, 30}));
}

TEST(VirtualWorld, ShowsEachTimerItsOwnTime) {
  VirtualWorld world;
  auto executor = world.make_executor();
  auto start = executor->now();
  Clock::duration first{}, second{};
  executor->post_after(10ms, [&] {
    first = executor->now() - start;
    executor->post_after(5ms, [&] { second = executor->now() - start; });
  });
  world.advance(1s);
  EXPECT_EQ(first, 10ms);
  EXPECT_EQ(second, 15ms);
  EXPECT_EQ(executor->now() - start, 1s);
}

TEST(VirtualWorld, DropsMessagesToADeadActor) {
  VirtualWorld world;
  auto recorder = std::make_shared<Recorder>(world.make_executor());
  tell_after(recorder, 1ms, 1);
  recorder.reset();
  world.advance(1s);
}

}  // namespace
}  // namespace strata::actor
