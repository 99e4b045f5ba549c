#include "services/cli/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "services/obs/log.h"
#include "services/rpc/process_main.h"

namespace strata::cli {

using namespace std::chrono_literals;
using actor::tell;
using actor::tell_after;

namespace {

// A process that was ready for so long starts again with the shortest pause.
constexpr auto kHealthyAfter = 30s;
// Before the first "ready" somebody waits for it: a process that never comes up must not be tried for ever.
constexpr uint32_t kFirstStartsMax = 6;
constexpr auto kPollStarting = 50ms;
constexpr auto kPollReady = 1000ms;

// Everything is gone within five seconds of the request to stop: the drain and a little for the gateway to
// end after it, then a second for the others to put things away, and a margin for the kernel to take them
// down.
constexpr auto kDrainMargin = 300ms;
constexpr auto kPatience = 1000ms;
constexpr auto kAllKilledAfter = 4600ms;

std::string fact(const v1::GetStatusResponse& status, std::string_view name) {
  for (const auto& entry : status.facts()) {
    if (entry.name() == name) return entry.value();
  }
  return "";
}

}  // namespace

Supervisor::Supervisor(std::shared_ptr<actor::Executor> executor, SupervisorOptions options,
                       ProcessHost& host, StatusSource& status, SupervisorEvents events)
    : Actor(std::move(executor)),
      options_(std::move(options)),
      host_(host),
      status_(status),
      events_(std::move(events)) {
  for (const ChildSpec& spec : options_.children) {
    Child& child = children_.emplace_back();
    child.spec = spec;
    child.view.name = spec.name;
  }
  started_ = this->executor().now();
  publish();
}

ClusterView Supervisor::view() const {
  std::scoped_lock lock(view_mutex_);
  return view_;
}

void Supervisor::publish() {
  ClusterView view;
  view.address = address_;
  view.started = started_;
  view.ready = true;
  for (const Child& child : children_) {
    view.children.push_back(child.view);
    if (child.spec.essential && child.view.state != ChildState::kReady) view.ready = false;
  }
  std::scoped_lock lock(view_mutex_);
  view_ = std::move(view);
}

void Supervisor::on(Start) {
  for (std::size_t index = 0; index < children_.size() && phase_ == Phase::kRunning; ++index)
    start_child(index);
  publish();
  tell(self(), Poll{});
}

void Supervisor::start_child(std::size_t index) {
  Child& child = children_[index];
  child.instance += 1;
  child.ready_since.reset();
  child.view.state = ChildState::kStarting;
  auto pid = host_.start(child.spec,
                         [weak = weak_from_this(), index, instance = child.instance](sys::ExitStatus exit) {
                           auto alive = std::static_pointer_cast<Supervisor>(weak.lock());
                           if (alive) tell(alive, Gone{index, instance, exit});
                         });
  if (pid) {
    child.view.pid = *pid;
    child.view.started = executor().now();
    obs::info("supervisor", "{} started, pid {}", child.spec.name, *pid);
    return;
  }
  obs::error("supervisor", "{} cannot be started: {}", child.spec.name, pid.error().message());
  child.view.last_exit = pid.error().message();
  if (was_ready_) {
    schedule_restart(index);
  } else {
    child.view.state = ChildState::kStopped;
    begin_stop(rpc::kExitStartupFault);
  }
}

void Supervisor::on(Gone message) {
  Child& child = children_[message.child];
  if (message.instance != child.instance) return;
  uint32_t pid = child.view.pid;
  child.view.pid = 0;
  child.view.last_exit = message.exit.text();
  bool fault = !message.exit.signaled && message.exit.value == rpc::kExitStartupFault;
  if (phase_ != Phase::kRunning) {
    child.view.state = ChildState::kStopped;
    obs::info("supervisor", "{} (pid {}) ended: {}", child.spec.name, pid, child.view.last_exit);
    if (phase_ == Phase::kDraining && child.spec.drains) stop_the_rest();
    check_finished();
  } else if (fault && !was_ready_) {
    // Its own line has said why.
    child.view.state = ChildState::kStopped;
    begin_stop(rpc::kExitStartupFault);
  } else {
    obs::warn("supervisor", "{} (pid {}) ended: {}", child.spec.name, pid, child.view.last_exit);
    if (!was_ready_ && child.failures + 1 >= kFirstStartsMax) {
      obs::error("supervisor", "{} ended {} times before the cluster was ready", child.spec.name,
                 kFirstStartsMax);
      child.view.state = ChildState::kStopped;
      begin_stop(1);
    } else {
      schedule_restart(message.child);
    }
  }
  publish();
}

void Supervisor::schedule_restart(std::size_t index) {
  Child& child = children_[index];
  if (child.ready_since && executor().now() - *child.ready_since >= kHealthyAfter) child.failures = 0;
  auto pause = options_.backoff;
  for (uint32_t i = 0; i < child.failures && pause < options_.backoff_max; ++i) pause *= 2;
  pause = std::min(pause, options_.backoff_max);
  child.failures += 1;
  child.view.restarts += 1;
  child.view.state = ChildState::kRestarting;
  obs::info("supervisor", "{} starts again in {} ms", child.spec.name, pause.count());
  tell_after(self(), pause, Restart{index, child.instance});
}

void Supervisor::on(Restart message) {
  Child& child = children_[message.child];
  if (phase_ != Phase::kRunning || message.instance != child.instance) return;
  start_child(message.child);
  publish();
}

void Supervisor::on(Poll) {
  if (phase_ != Phase::kRunning) return;
  bool all_ready = true;
  for (std::size_t index = 0; index < children_.size(); ++index) {
    Child& child = children_[index];
    if (child.view.state != ChildState::kReady) all_ready = false;
    // A ready process needs no more questions: its end shows in the pidfd.
    if (child.view.state != ChildState::kStarting || child.view.pid == 0 || child.asked) continue;
    child.asked = true;
    status_.ask(child.spec.name, [weak = weak_from_this(), index,
                                  instance = child.instance](Result<v1::GetStatusResponse> status) {
      auto alive = std::static_pointer_cast<Supervisor>(weak.lock());
      if (alive) tell(alive, Answered{index, instance, std::move(status)});
    });
  }
  tell_after(self(), all_ready ? kPollReady : kPollStarting, Poll{});
}

void Supervisor::on(Answered message) {
  Child& child = children_[message.child];
  child.asked = false;
  // The pid tells the answers of this instance from those of one that has just died.
  bool ours = message.instance == child.instance && message.status && message.status->pid() == child.view.pid;
  if (!ours || phase_ != Phase::kRunning || child.view.state != ChildState::kStarting) return;
  auto state = message.status->state();
  if (state != v1::PROCESS_STATE_READY && state != v1::PROCESS_STATE_DEGRADED) return;
  if (child.spec.drains) {
    std::string address = fact(*message.status, "address");
    if (address.empty()) return;
    if (address_.empty()) {
      // A port that was left to chance is kept over restarts: clients know it by now.
      auto scheme = address.find("://");
      std::string listen = scheme == std::string::npos ? address : address.substr(scheme + 3);
      child.spec.arguments.insert(child.spec.arguments.end(),
                                  {"--set", fmt::format("gateway.listen='{}'", listen)});
    }
    address_ = address.starts_with("http") ? address : "http://" + address;
  }
  child.view.state = ChildState::kReady;
  child.ready_since = executor().now();
  obs::info("supervisor", "{} is ready", child.spec.name);
  check_ready();
  publish();
}

void Supervisor::check_ready() {
  if (was_ready_) return;
  if (!std::all_of(children_.begin(), children_.end(),
                   [](const Child& c) { return c.view.state == ChildState::kReady; }))
    return;
  was_ready_ = true;
  publish();  // whoever reads the ready line may ask for the status at once
  events_.ready(address_);
}

void Supervisor::on(Stop) {
  if (phase_ == Phase::kRunning) {
    obs::info("supervisor", "stopping");
    begin_stop(0);
  } else {
    on(PatienceOver{});
  }
  publish();
}

void Supervisor::begin_stop(int exit_code) {
  phase_ = Phase::kDraining;
  exit_code_ = exit_code;
  stop_began_ = executor().now();
  bool draining = false;
  for (Child& child : children_) {
    child.view.state = child.view.pid == 0 ? ChildState::kStopped : ChildState::kStopping;
    if (child.view.pid == 0 || !child.spec.drains || !was_ready_) continue;
    host_.signal(child.view.pid, SIGTERM);
    draining = true;
  }
  if (draining) {
    tell_after(self(), options_.drain + kDrainMargin, DrainOver{});
  } else {
    stop_the_rest();
  }
}

void Supervisor::on(DrainOver) {
  if (phase_ == Phase::kDraining) stop_the_rest();
}

void Supervisor::stop_the_rest() {
  bool drained = was_ready_;
  phase_ = Phase::kStopping;
  for (Child& child : children_) {
    if (child.view.pid == 0) continue;
    // One that was told to drain and still runs has had its time.
    host_.signal(child.view.pid, child.spec.drains && drained ? SIGKILL : SIGTERM);
  }
  auto left = stop_began_ + kAllKilledAfter - executor().now();
  tell_after(self(), std::min<actor::Clock::duration>(kPatience, left), PatienceOver{});
  check_finished();
}

void Supervisor::on(PatienceOver) {
  phase_ = phase_ == Phase::kFinished ? phase_ : Phase::kStopping;
  for (Child& child : children_) {
    if (child.view.pid == 0) continue;
    obs::warn("supervisor", "{} (pid {}) is killed", child.spec.name, child.view.pid);
    host_.signal(child.view.pid, SIGKILL);
  }
}

void Supervisor::check_finished() {
  if (phase_ != Phase::kStopping) return;
  if (!std::all_of(children_.begin(), children_.end(),
                   [](const Child& child) { return child.view.pid == 0; }))
    return;
  phase_ = Phase::kFinished;
  events_.finished(exit_code_);
}

}  // namespace strata::cli
