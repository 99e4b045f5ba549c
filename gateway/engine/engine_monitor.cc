#include "gateway/engine/engine_monitor.h"

namespace strata::gateway {

namespace {

using std::chrono::milliseconds;

// While the engine is away or loading, clients wait for it: look more often.
constexpr milliseconds kReadyInterval{250};
constexpr milliseconds kWaitingInterval{100};

}  // namespace

EngineMonitor::EngineMonitor(std::shared_ptr<actor::Executor> executor, EngineClient& client,
                             std::vector<std::function<void(const EngineState&)>> listeners)
    : Actor(std::move(executor)), client_(&client), listeners_(std::move(listeners)) {}

void EngineMonitor::on(Start) { look(); }

void EngineMonitor::on(Lost) {
  ++epoch_;
  publish({});
  look();
}

void EngineMonitor::on(Seen seen) {
  if (seen.epoch != epoch_) return;
  publish(seen.state);
  const bool ready = seen.state.phase == EngineState::Phase::kReady;
  Again again{.epoch = epoch_};
  tell_after(std::static_pointer_cast<EngineMonitor>(shared_from_this()),
             ready ? kReadyInterval : kWaitingInterval, again);
}

void EngineMonitor::on(Again again) {
  if (again.epoch == epoch_) look();
}

void EngineMonitor::look() {
  std::weak_ptr<EngineMonitor> weak = std::static_pointer_cast<EngineMonitor>(shared_from_this());
  client_->poll([weak, epoch = epoch_](EngineState state) {
    if (auto self = weak.lock()) tell(self, Seen{.epoch = epoch, .state = std::move(state)});
  });
}

void EngineMonitor::publish(const EngineState& state) {
  for (const auto& listener : listeners_) listener(state);
}

}  // namespace strata::gateway
