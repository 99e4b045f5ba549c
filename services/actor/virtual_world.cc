#include <map>

#include "services/actor/actor_system.h"

namespace strata::actor {

struct VirtualWorld::Impl {
  // In order of time, then of posting.
  std::map<std::pair<Clock::time_point, uint64_t>, std::function<void()>> mailbox;
  Clock::time_point now{};
  uint64_t posted = 0;

  void post_at(Clock::time_point due, std::function<void()> work) {
    mailbox.emplace(std::pair(due, posted++), std::move(work));
  }

  bool deliver_one() {
    auto first = mailbox.begin();
    if (first == mailbox.end() || first->first.first > now) return false;
    auto work = std::move(first->second);
    mailbox.erase(first);
    work();
    return true;
  }

  class VirtualExecutor;
};

class VirtualWorld::Impl::VirtualExecutor final : public Executor {
 public:
  explicit VirtualExecutor(std::weak_ptr<Impl> world) : world_(std::move(world)) {}
  void post(std::function<void()> work) override {
    if (auto world = world_.lock()) world->post_at(world->now, std::move(work));
  }
  void post_after(Clock::duration delay, std::function<void()> work) override {
    if (auto world = world_.lock()) world->post_at(world->now + delay, std::move(work));
  }
  Clock::time_point now() const override {
    auto world = world_.lock();
    return world ? world->now : Clock::time_point{};
  }

 private:
  std::weak_ptr<Impl> world_;
};

VirtualWorld::VirtualWorld() : impl_(std::make_shared<Impl>()) {}
VirtualWorld::~VirtualWorld() = default;

std::shared_ptr<Executor> VirtualWorld::make_executor() {
  return std::make_shared<Impl::VirtualExecutor>(impl_);
}

bool VirtualWorld::deliver_one() { return impl_->deliver_one(); }

uint32_t VirtualWorld::deliver_all() {
  uint32_t delivered = 0;
  while (impl_->deliver_one()) ++delivered;
  return delivered;
}

void VirtualWorld::advance(Clock::duration duration) {
  Clock::time_point end = impl_->now + duration;
  deliver_all();
  while (!impl_->mailbox.empty() && impl_->mailbox.begin()->first.first <= end) {
    impl_->now = impl_->mailbox.begin()->first.first;
    deliver_all();
  }
  impl_->now = end;
}

void VirtualWorld::spend(Clock::duration duration) { impl_->now += duration; }

}  // namespace strata::actor
