// The watch on a real board and a real thread. What is waited for is always a call that must come.

#include "cache-manager/window_watch.h"

#include <gtest/gtest.h>

#include "services/base/check.h"

namespace strata::cache_manager {
namespace {

class WindowWatchTest : public testing::Test {
 protected:
  static std::shared_ptr<Grant> grant() {
    auto grant = std::make_shared<Grant>();
    auto usage =
        shm::UsageBoard::create(shm::segment_name("unittest", "watch", shm::random_instance_id()), 1, 1);
    CHECK(usage.has_value(), "{}", usage.error().message());
    grant->usage = std::move(*usage);
    return grant;
  }
  // Returns once the watch has called at least so often.
  void await(uint32_t calls) {
    std::unique_lock lock(mutex_);
    called_.wait(lock, [&] { return calls_ >= calls; });
  }
  std::function<void()> counting() {
    return [this] {
      std::lock_guard lock(mutex_);
      ++calls_;
      called_.notify_all();
    };
  }
  static void await_sleeper(const Grant& grant) {
    while (grant.usage.header().window_counted.sleepers.load() == 0) std::this_thread::yield();
  }

  std::mutex mutex_;
  std::condition_variable called_;
  uint32_t calls_ = 0;
  DoorbellWatch watch_{std::chrono::microseconds(0)};
};

TEST_F(WindowWatchTest, TellsOfEachWindowThatFinishes) {
  auto watched = grant();
  watch_.begin(watched, counting());
  for (uint32_t window = 1; window <= 5; ++window) {
    await_sleeper(*watched);
    watched->usage.window_finished({.prompt = 0, .generated = 1});
    await(window);
  }
  EXPECT_EQ(calls_, 5u) << "nothing is told twice";
}

TEST_F(WindowWatchTest, FollowsTheBoardOfTheLastGrantAndLeavesTheOthersAlone) {
  auto first = grant();
  auto second = grant();
  watch_.begin(first, [] { FAIL() << "the first board is not watched any more"; });
  await_sleeper(*first);
  watch_.begin(second, counting());
  await_sleeper(*second);
  first->usage.window_finished({});
  second->usage.window_finished({});
  await(1);
  watch_.end();
  while (second.use_count() > 1) std::this_thread::yield();  // nobody holds a board that is not watched
  EXPECT_EQ(first.use_count(), 1);
}

TEST_F(WindowWatchTest, EndsWhileItSleepsAndBeforeItEverWatched) {
  DoorbellWatch unused(std::chrono::microseconds(0));
  auto watched = grant();
  {
    DoorbellWatch asleep(std::chrono::microseconds(0));
    asleep.begin(watched, [] {});
    await_sleeper(*watched);
  }
  EXPECT_EQ(watched.use_count(), 1);
}

}  // namespace
}  // namespace strata::cache_manager
