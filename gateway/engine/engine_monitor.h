#pragma once
// Looks at the engine again and again and tells whoever listens what it saw. One outstanding look at a time.

#include <functional>
#include <memory>
#include <vector>

#include "gateway/engine/engine_client.h"
#include "services/actor/actor.h"

namespace strata::gateway {

class EngineMonitor : public actor::Actor {
 public:
  struct Start {};
  // Somebody's call broke: what was seen before no longer counts, look at once.
  struct Lost {};
  struct Seen {
    uint64_t epoch = 0;
    EngineState state = {};
  };
  struct Again {
    uint64_t epoch = 0;
  };

  // listeners: called in this actor's mailbox with every look; they post to whom it concerns. client must
  // outlive the monitor.
  EngineMonitor(std::shared_ptr<actor::Executor> executor, EngineClient& client,
                std::vector<std::function<void(const EngineState&)>> listeners);

  void on(Start);
  void on(Lost);
  void on(Seen seen);
  void on(Again again);

 private:
  void look();
  void publish(const EngineState& state);

  EngineClient* client_;
  std::vector<std::function<void(const EngineState&)>> listeners_;
  uint64_t epoch_ = 0;  // answers of an older epoch are from before a loss
};

}  // namespace strata::gateway
