#include "services/actor/actor_system.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "services/base/check.h"

namespace strata::actor {

namespace asio = boost::asio;

using Strand = asio::strand<asio::io_context::executor_type>;

struct ActorSystem::Impl {
  asio::io_context context;
  asio::executor_work_guard<asio::io_context::executor_type> keep_running{context.get_executor()};
  // Here and not in the executors: a strand must not outlive its context, an actor may outlive the system.
  std::mutex strands_mutex;
  std::list<Strand> strands;
  std::mutex threads_mutex;
  std::vector<std::thread> threads;

  void stop() {
    context.stop();
    std::scoped_lock lock(threads_mutex);
    for (auto& thread : threads) {
      CHECK(thread.get_id() != std::this_thread::get_id(), "an actor cannot stop the system that runs it");
      thread.join();
    }
    threads.clear();
  }

  class StrandExecutor;
};

class ActorSystem::Impl::StrandExecutor final : public Executor {
 public:
  explicit StrandExecutor(const std::shared_ptr<Impl>& system) : system_(system) {
    std::scoped_lock lock(system->strands_mutex);
    strand_ = system->strands.insert(system->strands.end(), Strand(system->context.get_executor()));
  }

  ~StrandExecutor() override {
    if (auto system = system_.lock()) {
      std::scoped_lock lock(system->strands_mutex);
      system->strands.erase(strand_);
    }
  }

  void post(std::function<void()> work) override {
    if (auto system = system_.lock()) asio::post(*strand_, std::move(work));
  }

  void post_after(Clock::duration delay, std::function<void()> work) override {
    auto system = system_.lock();
    if (!system) return;
    auto timer = std::make_unique<asio::steady_timer>(*strand_, delay);
    auto& waiting = *timer;
    waiting.async_wait([timer = std::move(timer), work = std::move(work)](boost::system::error_code error) {
      if (!error) work();
    });
  }

  Clock::time_point now() const override { return Clock::now(); }

 private:
  std::weak_ptr<Impl> system_;
  std::list<Strand>::iterator strand_;
};

ActorSystem::ActorSystem(uint32_t threads) : impl_(std::make_shared<Impl>()) {
  CHECK(threads >= 1, "{}", threads);
  for (uint32_t i = 0; i < threads; ++i)
    impl_->threads.emplace_back([impl = impl_.get()] { impl->context.run(); });
}

ActorSystem::~ActorSystem() { stop(); }

std::shared_ptr<Executor> ActorSystem::make_executor() {
  return std::make_shared<Impl::StrandExecutor>(impl_);
}

void ActorSystem::stop() { impl_->stop(); }

}  // namespace strata::actor
