#pragma once
// Never a silent hang: a window that takes longer than its budget ends the process with a line that says
// where it stood. A thread that is stuck inside a window cannot be stopped from outside it, so the way back
// is a restart: the supervisor starts the worker again and the gateway resubmits what was running
// (docs/decisions/060-watchdog-restarts-the-engine.md).

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace strata::gpu_worker {

// Where the window loop is; written by the loop, read by the watchdog.
class WindowTrace {
 public:
  void begin(const char* first_phase);
  void phase(const char* name) { phase_.store(name, std::memory_order_relaxed); }
  void end() { begun_ns_.store(0, std::memory_order_relaxed); }

  uint64_t number() const { return number_.load(std::memory_order_relaxed); }
  const char* phase() const { return phase_.load(std::memory_order_relaxed); }
  // How long the present window has been running; zero between windows.
  std::chrono::nanoseconds running_for() const;

 private:
  std::atomic<uint64_t> number_{0};
  std::atomic<const char*> phase_{"idle"};  // string literals only
  std::atomic<int64_t> begun_ns_{0};        // steady clock; 0: between windows
};

struct WatchdogOptions {
  const WindowTrace* trace = nullptr;
  std::chrono::milliseconds budget{0};
  std::function<std::string()> parties;              // what each party last did
  std::function<void(const std::string&)> on_stuck;  // empty: log an error and abort
};

class Watchdog {
 public:
  explicit Watchdog(WatchdogOptions options);
  ~Watchdog();

 private:
  void run();

  WatchdogOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace strata::gpu_worker
