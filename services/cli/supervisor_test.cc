// The supervisor's decisions on virtual time, with processes and answers that the test makes up.
#include "services/cli/supervisor.h"

#include <gmock/gmock.h>

#include <csignal>
#include <map>
#include <set>

#include "services/actor/actor_system.h"
#include "services/obs/log.h"

namespace strata::cli {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FakeHost final : public ProcessHost {
 public:
  Result<uint32_t> start(const ChildSpec& spec, std::function<void(sys::ExitStatus)> on_exit) override {
    if (spec.arguments.at(0) == missing) return fail(Code::kNotFound, "{}: no such file", missing);
    uint32_t pid = ++last_pid;
    running[pid] = {spec.name, std::move(on_exit)};
    started.push_back(spec.name);
    return pid;
  }
  void signal(uint32_t pid, int signal) override {
    if (!running.contains(pid)) return;
    signals.push_back(fmt::format("{} {}", running[pid].name, signal));
    if (signal == SIGKILL || (signal == SIGTERM && !stubborn.contains(running[pid].name))) {
      end(running[pid].name, {.signaled = signal == SIGKILL, .value = signal == SIGKILL ? SIGKILL : 0});
    }
  }

  uint32_t pid_of(const std::string& name) const {
    for (const auto& [pid, process] : running) {
      if (process.name == name) return pid;
    }
    return 0;
  }
  void end(const std::string& name, sys::ExitStatus exit) {
    auto entry = running.extract(pid_of(name));
    ASSERT_FALSE(entry.empty()) << name << " does not run";
    entry.mapped().on_exit(exit);
  }

  struct Process {
    std::string name;
    std::function<void(sys::ExitStatus)> on_exit;
  };
  uint32_t last_pid = 100;
  std::map<uint32_t, Process> running;
  std::vector<std::string> started, signals;
  std::set<std::string> stubborn;  // these ignore SIGTERM
  std::string missing;             // this program does not exist
};

class FakeStatus final : public StatusSource {
 public:
  explicit FakeStatus(FakeHost& host) : host_(host) {}
  void ask(const std::string& process, std::function<void(Result<v1::GetStatusResponse>)> answer) override {
    if (silent.contains(process)) return answer(fail(Code::kUnavailable, "nobody listens"));
    v1::GetStatusResponse response;
    response.set_pid(host_.pid_of(process));
    response.set_state(states.contains(process) ? states[process] : v1::PROCESS_STATE_READY);
    if (process == "gateway") {
      auto* fact = response.add_facts();
      fact->set_name("address");
      fact->set_value("http://127.0.0.1:8080");
    }
    answer(response);
  }
  std::set<std::string> silent;
  std::map<std::string, v1::ProcessState> states;

 private:
  FakeHost& host_;
};

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    obs::init_log({.process = "test", .level = obs::Level::kError});
    for (const char* name : {"gpu-worker", "cache-manager", "gateway"}) {
      ChildSpec spec;
      spec.name = name;
      spec.arguments = {fmt::format("/bin/{}", name)};
      spec.drains = spec.name == "gateway";
      spec.essential = spec.name != "cache-manager";
      options_.children.push_back(spec);
    }
    options_.backoff = 200ms;
    options_.backoff_max = 1000ms;
    options_.drain = 3000ms;
  }

  void start() {
    SupervisorEvents events;
    events.ready = [this](const std::string& address) { ready_.push_back(address); };
    events.finished = [this](int code) { finished_.push_back(code); };
    supervisor_ = std::make_shared<Supervisor>(world_.make_executor(), options_, host_, status_, events);
    actor::tell(supervisor_, Supervisor::Start{});
    world_.deliver_all();
  }

  void start_until_ready() {
    start();
    world_.advance(100ms);
    ASSERT_THAT(ready_, ElementsAre("http://127.0.0.1:8080"));
  }

  void stop() {
    actor::tell(supervisor_, Supervisor::Stop{});
    world_.deliver_all();
  }

  void end(const std::string& name, sys::ExitStatus exit) {
    host_.end(name, exit);
    world_.deliver_all();
  }

  ChildView child(const std::string& name) {
    for (const ChildView& view : supervisor_->view().children) {
      if (view.name == name) return view;
    }
    return {};
  }

  const sys::ExitStatus kKilled{.signaled = true, .value = SIGKILL};
  actor::VirtualWorld world_;
  SupervisorOptions options_;
  FakeHost host_;
  FakeStatus status_{host_};
  std::shared_ptr<Supervisor> supervisor_;
  std::vector<std::string> ready_;
  std::vector<int> finished_;
};

TEST_F(SupervisorTest, StartsAllAndIsReadyWhenAllAre) {
  status_.silent = {"gateway"};
  status_.states["gpu-worker"] = v1::PROCESS_STATE_STARTING;
  start();
  EXPECT_THAT(host_.started, ElementsAre("gpu-worker", "cache-manager", "gateway"));
  world_.advance(10s);
  EXPECT_THAT(ready_, IsEmpty());
  EXPECT_FALSE(supervisor_->view().ready);
  status_.silent.clear();
  status_.states["gpu-worker"] = v1::PROCESS_STATE_DEGRADED;
  world_.advance(100ms);
  EXPECT_THAT(ready_, ElementsAre("http://127.0.0.1:8080"));
  EXPECT_TRUE(supervisor_->view().ready);
  EXPECT_EQ(child("gpu-worker").state, ChildState::kReady);
}

TEST_F(SupervisorTest, RestartsWhatDiesAfterAPause) {
  start_until_ready();
  uint32_t old_pid = child("cache-manager").pid;
  end("cache-manager", kKilled);
  EXPECT_EQ(child("cache-manager").state, ChildState::kRestarting);
  EXPECT_EQ(child("cache-manager").pid, 0u);
  EXPECT_EQ(child("cache-manager").last_exit, "signal 9 (Killed)");
  EXPECT_TRUE(supervisor_->view().ready) << "answers go on without it";
  world_.advance(199ms);
  EXPECT_EQ(child("cache-manager").pid, 0u);
  world_.advance(2s);
  EXPECT_NE(child("cache-manager").pid, old_pid);
  EXPECT_EQ(child("cache-manager").state, ChildState::kReady);
  EXPECT_EQ(child("cache-manager").restarts, 1u);
  EXPECT_EQ(ready_.size(), 1u) << "the ready line is printed once";
}

TEST_F(SupervisorTest, IsNotReadyWithoutTheGpuWorker) {
  start_until_ready();
  end("gpu-worker", kKilled);
  EXPECT_FALSE(supervisor_->view().ready);
  world_.advance(2s);
  EXPECT_TRUE(supervisor_->view().ready);
}

TEST_F(SupervisorTest, DoublesThePauseUpToTheLongestAndForgetsAfterAHealthyTime) {
  start_until_ready();
  auto pause_after_death = [&] {
    end("cache-manager", kKilled);
    auto pause = 0ms;
    while (child("cache-manager").pid == 0 && pause < 10s) {
      world_.advance(1ms);
      pause += 1ms;
    }
    return pause;
  };
  EXPECT_EQ(pause_after_death(), 200ms);
  EXPECT_EQ(pause_after_death(), 400ms);
  EXPECT_EQ(pause_after_death(), 800ms);
  EXPECT_EQ(pause_after_death(), 1000ms);
  EXPECT_EQ(pause_after_death(), 1000ms);
  world_.advance(29s);
  EXPECT_EQ(pause_after_death(), 1000ms) << "not healthy for long enough";
  world_.advance(32s);
  EXPECT_EQ(pause_after_death(), 200ms);
}

TEST_F(SupervisorTest, GivesUpOnAStartUpFaultBeforeItWasReady) {
  status_.silent = {"gpu-worker"};
  start();
  end("gpu-worker", {.signaled = false, .value = 2});
  EXPECT_THAT(host_.signals, ElementsAre("cache-manager 15", "gateway 15"));
  EXPECT_THAT(finished_, ElementsAre(2));
  world_.advance(60s);
  EXPECT_EQ(host_.started.size(), 3u) << "nothing is tried again";
  EXPECT_THAT(ready_, IsEmpty());
}

TEST_F(SupervisorTest, TriesOtherEndsAgainEvenBeforeItWasReady) {
  status_.silent = {"gpu-worker"};
  start();
  end("gpu-worker", {.signaled = false, .value = 1});
  world_.advance(1s);
  EXPECT_THAT(host_.started, ElementsAre("gpu-worker", "cache-manager", "gateway", "gpu-worker"));
  EXPECT_THAT(finished_, IsEmpty());
}

TEST_F(SupervisorTest, KeepsTheOthersWhenOneCannotComeBackLater) {
  start_until_ready();
  end("cache-manager", {.signaled = false, .value = 2});
  world_.advance(1s);
  EXPECT_THAT(finished_, IsEmpty());
  EXPECT_EQ(child("cache-manager").restarts, 1u);
}

TEST_F(SupervisorTest, GivesUpWhenAProgramIsMissing) {
  host_.missing = "/bin/cache-manager";
  start();
  EXPECT_THAT(finished_, ElementsAre(2));
  EXPECT_THAT(host_.running, IsEmpty());
}

TEST_F(SupervisorTest, StopsTheGatewayFirstAndThenTheOthers) {
  start_until_ready();
  stop();
  EXPECT_THAT(host_.signals, ElementsAre("gateway 15", "gpu-worker 15", "cache-manager 15"));
  EXPECT_THAT(finished_, ElementsAre(0));
  EXPECT_EQ(child("gpu-worker").state, ChildState::kStopped);
}

TEST_F(SupervisorTest, LetsRunningAnswersDrain) {
  start_until_ready();
  host_.stubborn = {"gateway"};
  stop();
  EXPECT_THAT(host_.signals, ElementsAre("gateway 15"));
  world_.advance(2900ms);
  EXPECT_THAT(host_.signals, ElementsAre("gateway 15")) << "still draining";
  end("gateway", {.signaled = false, .value = 0});
  EXPECT_THAT(finished_, ElementsAre(0));
}

TEST_F(SupervisorTest, KillsWhatDoesNotStopWithinFiveSeconds) {
  options_.drain = 4000ms;
  start_until_ready();
  host_.stubborn = {"gateway", "gpu-worker", "cache-manager"};
  stop();
  world_.advance(4700ms);
  EXPECT_THAT(host_.signals, Contains("gateway 9"));
  EXPECT_THAT(host_.signals, Contains("gpu-worker 9"));
  EXPECT_THAT(host_.running, IsEmpty());
  EXPECT_THAT(finished_, ElementsAre(0));
}

TEST_F(SupervisorTest, DoesNotWaitWhenAskedASecondTime) {
  start_until_ready();
  host_.stubborn = {"gateway", "gpu-worker", "cache-manager"};
  stop();
  stop();
  EXPECT_THAT(host_.running, IsEmpty());
  EXPECT_THAT(finished_, ElementsAre(0));
}

TEST_F(SupervisorTest, StartsNothingAgainWhileStopping) {
  start_until_ready();
  end("cache-manager", kKilled);
  host_.stubborn = {"gateway"};
  stop();
  world_.advance(10s);
  EXPECT_EQ(host_.started.size(), 3u);
  EXPECT_THAT(finished_, ElementsAre(0));
}

TEST_F(SupervisorTest, StopsBeforeItIsReady) {
  status_.silent = {"gateway"};
  start();
  stop();
  EXPECT_THAT(finished_, ElementsAre(0));
  EXPECT_THAT(host_.running, IsEmpty());
}

}  // namespace
}  // namespace strata::cli
