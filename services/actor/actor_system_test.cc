#include "services/actor/actor_system.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace strata::actor {
namespace {

using namespace std::chrono_literals;
constexpr auto kDeadline = 20s;

struct Add {
  uint32_t from, value;
};
struct Finish {};

class Collector : public Actor {
 public:
  using Actor::Actor;
  void on(Add message) {
    EXPECT_EQ(busy.exchange(true), false) << "two messages at the same time";
    seen.push_back(message);
    busy = false;
  }
  void on(Finish) { done.set_value(); }

  std::atomic<bool> busy{false};
  std::vector<Add> seen;
  std::promise<void> done;
};

TEST(ActorSystem, HandlesMessagesOneAtATimeInTheOrderOfEachSender) {
  ActorSystem system(3);
  auto collector = std::make_shared<Collector>(system.make_executor());
  std::vector<std::thread> senders;
  for (uint32_t sender = 0; sender < 3; ++sender) {
    senders.emplace_back([&, sender] {
      for (uint32_t i = 0; i < 500; ++i) tell(collector, Add{sender, i});
    });
  }
  for (auto& sender : senders) sender.join();
  tell(collector, Finish{});
  ASSERT_EQ(collector->done.get_future().wait_for(kDeadline), std::future_status::ready);
  ASSERT_EQ(collector->seen.size(), 1500u);
  uint32_t next[3] = {};
  for (const Add& add : collector->seen) EXPECT_EQ(add.value, next[add.from]++);
}

TEST(ActorSystem, DeliversLaterMessagesNotBeforeTheirTime) {
  ActorSystem system(1);
  auto collector = std::make_shared<Collector>(system.make_executor());
  auto begin = Clock::now();
  tell_after(collector, 30ms, Finish{});
  ASSERT_EQ(collector->done.get_future().wait_for(kDeadline), std::future_status::ready);
  EXPECT_GE(Clock::now() - begin, 30ms);
}

TEST(ActorSystem, DropsMessagesToADeadActor) {
  ActorSystem system(1);
  auto alive = std::make_shared<Collector>(system.make_executor());
  auto dead = std::make_shared<Collector>(system.make_executor());
  tell_after(dead, 1ms, Add{0, 1});
  dead.reset();
  tell_after(alive, 20ms, Finish{});
  EXPECT_EQ(alive->done.get_future().wait_for(kDeadline), std::future_status::ready);
}

TEST(ActorSystem, LetsActorsOutliveIt) {
  std::shared_ptr<Collector> collector;
  {
    ActorSystem system(2);
    collector = std::make_shared<Collector>(system.make_executor());
    tell_after(collector, 1h, Finish{});
  }
  tell(collector, Add{0, 1});
  tell_after(collector, 1ms, Add{0, 1});
  EXPECT_TRUE(collector->seen.empty());
}

}  // namespace
}  // namespace strata::actor
