#pragma once
// A keeper of states for tests on virtual time: the test says what it says.

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "gateway/index/state_feed.h"

namespace strata::gateway::testing {

class ScriptedFeed : public StateFeed {
 public:
  void watch(std::function<void(FeedEvent)> on_event) override {
    ++watches;
    say_ = std::move(on_event);
  }
  void say(FeedEvent event) { say_(std::move(event)); }
  void list(uint64_t instance, std::optional<IndexIdentity> identity, std::vector<FeedState> states) {
    say(FeedBegin{.instance = instance, .identity = identity});
    for (FeedState& state : states) say(std::move(state));
    say(FeedComplete{});
  }
  uint32_t watches = 0;

 private:
  std::function<void(FeedEvent)> say_;
};

}  // namespace strata::gateway::testing
