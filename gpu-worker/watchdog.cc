#include "gpu-worker/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "services/obs/log.h"
#include "services/sys/cpus.h"

namespace strata::gpu_worker {

namespace {

int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void log_and_abort(const std::string& report) {
  obs::error("watchdog", "{}", report);
  std::abort();
}

}  // namespace

void WindowTrace::begin(const char* first_phase) {
  number_.fetch_add(1, std::memory_order_relaxed);
  phase(first_phase);
  begun_ns_.store(now_ns(), std::memory_order_relaxed);
}

std::chrono::nanoseconds WindowTrace::running_for() const {
  int64_t begun = begun_ns_.load(std::memory_order_relaxed);
  return std::chrono::nanoseconds(begun == 0 ? 0 : now_ns() - begun);
}

Watchdog::Watchdog(WatchdogOptions options) : options_(std::move(options)) {
  if (!options_.on_stuck) options_.on_stuck = log_and_abort;
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::run() {
  sys::name_this_thread("watchdog");
  // Looks often enough that a stuck window is found within an eighth of its budget.
  auto pause = std::max<std::chrono::milliseconds>(options_.budget / 8, std::chrono::milliseconds(1));
  uint64_t reported = 0;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, pause, [this] { return stop_; })) {
    const WindowTrace& trace = *options_.trace;
    uint64_t number = trace.number();
    std::chrono::nanoseconds running = trace.running_for();
    if (running <= options_.budget || number == reported) continue;
    reported = number;
    std::string parties = options_.parties ? options_.parties() : std::string();
    options_.on_stuck(fmt::format(
        "window {} has been running for {} ms (engine.window_budget_ms: {}), in phase \"{}\"; {}", number,
        running / std::chrono::milliseconds(1), options_.budget.count(), trace.phase(), parties));
  }
}

}  // namespace strata::gpu_worker
