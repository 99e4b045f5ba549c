#pragma once
// Keeps the processes of a cluster running: starts them, learns when they are ready, restarts what dies with
// growing pauses, and stops them in order. An actor; everything it touches from outside goes through
// ProcessHost and StatusSource.
//
//   starting --ready--> ready --dies--> restarting --pause over--> starting
//   any --stop--> stopping --gone--> stopped
//
// A process that ends with exit code 2 before the cluster was ever ready has found a fault that trying again
// cannot mend: the whole cluster stops, and so does `strata up`, with that code. Once the cluster has been
// ready, one process that cannot come back is no reason to take the others away: it is tried again like after
// any other end.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "services/actor/actor.h"
#include "services/cli/child_spec.h"
#include "services/cli/process_host.h"
#include "services/cli/status_source.h"

namespace strata::cli {

enum class ChildState { kStarting, kReady, kRestarting, kStopping, kStopped };

struct ChildView {
  std::string name;
  uint32_t pid = 0;  // 0 while it does not run
  ChildState state = ChildState::kStarting;
  uint32_t restarts = 0;
  actor::Clock::time_point started{};
  std::string last_exit;  // "signal 9 (Killed)", empty: never ended
};

struct ClusterView {
  std::vector<ChildView> children;
  std::string address;  // http://127.0.0.1:8080, once the gateway has said so
  bool ready = false;   // requests are answered
  actor::Clock::time_point started{};
};

struct SupervisorOptions {
  std::vector<ChildSpec> children;
  std::chrono::milliseconds backoff{200};
  std::chrono::milliseconds backoff_max{10000};
  std::chrono::milliseconds drain{3000};
};

struct SupervisorEvents {
  std::function<void(const std::string& address)> ready;  // once: all children are ready for the first time
  std::function<void(int exit_code)> finished;            // once: no child runs any more
};

class Supervisor final : public actor::Actor {
 public:
  struct Start {};
  struct Stop {};  // a second one does not wait any longer

  Supervisor(std::shared_ptr<actor::Executor> executor, SupervisorOptions options, ProcessHost& host,
             StatusSource& status, SupervisorEvents events);

  void on(Start);
  void on(Stop);

  ClusterView view() const;  // from any thread

 private:
  struct Child;
  // What comes back carries the number of the instance that it is about: answers of a dead one are dropped.
  struct Gone {
    std::size_t child;
    uint64_t instance;
    sys::ExitStatus exit;
  };
  struct Restart {
    std::size_t child;
    uint64_t instance;
  };
  struct Answered {
    std::size_t child;
    uint64_t instance;
    Result<v1::GetStatusResponse> status;
  };
  struct Poll {};
  struct DrainOver {};
  struct PatienceOver {};

  void on(Gone message);
  void on(Restart message);
  void on(Answered message);
  void on(Poll);
  void on(DrainOver);
  void on(PatienceOver);
  template <class Target, class Message>
  friend void actor::tell(const std::shared_ptr<Target>&, Message);
  template <class Target, class Message>
  friend void actor::tell_after(const std::shared_ptr<Target>&, actor::Clock::duration, Message);

  void start_child(std::size_t index);
  void schedule_restart(std::size_t index);
  void begin_stop(int exit_code);
  void stop_the_rest();
  void check_ready();
  void check_finished();
  void publish();
  std::shared_ptr<Supervisor> self() { return std::static_pointer_cast<Supervisor>(shared_from_this()); }

  struct Child {
    ChildSpec spec;
    ChildView view;
    uint64_t instance = 0;
    uint32_t failures = 0;  // ends in a row, without a healthy time in between
    bool asked = false;     // a question for its status is open
    std::optional<actor::Clock::time_point> ready_since;
  };

  enum class Phase { kRunning, kDraining, kStopping, kFinished };

  SupervisorOptions options_;
  ProcessHost& host_;
  StatusSource& status_;
  SupervisorEvents events_;
  std::vector<Child> children_;
  Phase phase_ = Phase::kRunning;
  bool was_ready_ = false;
  int exit_code_ = 0;
  std::string address_;
  actor::Clock::time_point started_{}, stop_began_{};

  mutable std::mutex view_mutex_;
  ClusterView view_;
};

}  // namespace strata::cli
