#pragma once
// For tests of parking: the scheduler over a fake device, whose answers depend on every token it was fed and
// which checks every restored state, and over the real store. The clock stands still until it is told to
// move; the transfers' thread is real, and waits for it are bounded.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include "gpu-worker/fake_device.h"
#include "gpu-worker/parking/fake_store.h"
#include "gpu-worker/window_scheduler.h"

namespace strata::gpu_worker {

class ParkingFixture : public testing::Test {
 protected:
  using Tokens = std::vector<int32_t>;
  static constexpr snapshot::Hash128 kOwn{.high = 1, .low = 1};
  static constexpr std::chrono::milliseconds kParkAfter{300};
  static constexpr uint32_t kPage = kStatePageTokens;

  struct Asked {
    std::shared_ptr<Generation> generation;
    std::shared_ptr<RecordingListener> heard;
  };

  static Tokens made_up(uint32_t count, int32_t first) {
    Tokens tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }
  static Tokens joined(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  // What an answer leaves behind: all of it but the last token, which was not fed.
  static Tokens left_by(const Tokens& prompt, uint32_t answer) {
    return joined(prompt, fake_answer(prompt, answer - 1));
  }
  static GenerationRequest request(Tokens prompt, uint32_t max_tokens = 4) {
    return {.request_id = "r",
            .prompt = std::move(prompt),
            .generated = {},
            .sampling = {},
            .max_tokens = max_tokens,
            .end_tokens = {},
            .name_space = kOwn};
  }

  Asked ask(GenerationRequest what) {
    auto heard = std::make_shared<RecordingListener>();
    auto generation = std::make_shared<Generation>(std::move(what), heard);
    scheduler_.admit(generation, events_);
    deliver();
    return {generation, heard};
  }
  // Boundaries and windows until the condition holds.
  void run_until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      boundary();
    }
  }
  void boundary() {
    scheduler_.drop_cancelled(events_);
    scheduler_.step(events_);
    if (scheduler_.idle()) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    } else {
      scheduler_.run_window(events_);
    }
    deliver();
  }
  std::shared_ptr<RecordingListener> answer(GenerationRequest what) {
    const Asked asked = ask(std::move(what));
    run_until([&] { return asked.heard->over(); });
    return asked.heard;
  }
  // Waits until so many states have been stored in all.
  void park(uint64_t states) {
    now_ += kParkAfter;
    run_until([&] { return stored() >= states; });
    boundary();
  }
  uint64_t stored() { return store_.counters().stored; }
  void deliver() {
    for (PostedEvent& posted : events_) {
      if (posted.listener != nullptr) {
        posted.listener->on_event(std::move(posted.event));
      } else {
        posted.call();
      }
    }
    events_.clear();
  }
  // Of the window and the copies beside it: who comes first waits for the other, not for ever.
  class Meeting {
   public:
    void reach() { reached_.store(true); }
    bool wait() const {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (!reached_.load()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      return true;
    }

   private:
    std::atomic<bool> reached_{false};
  };
  // Takes all places on the device, so that what was there before is gone.
  void fill_device(int32_t first = 100000) {
    for (uint32_t each = 0; each < kSequences; ++each)
      answer(request(made_up(5, first + static_cast<int32_t>(each) * 100), 1));
  }
  GenerationRequest parked(GenerationRequest what, const Tokens& tokens,
                           const std::vector<snapshot::TokenRange>& generated) {
    what.parked_id = store_.id_of(kOwn, tokens, generated);
    what.parked_tokens = static_cast<uint32_t>(tokens.size());
    return what;
  }
  static uint32_t cached(const RecordingListener& heard) {
    return std::get<PromptProgressed>(heard.events().front()).cached;
  }

  static constexpr uint32_t kSequences = 2;
  FakeDevice device_{kSequences};
  LoopCounters counters_;
  static constexpr uint32_t kBudgetUnits = 40;  // each takes a page or a fixed part
  FakeStore store_{fake_identity(device_.state_layout()), kBudgetUnits* snapshot::kExtentUnitBytes};
  std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::now();
  std::vector<StateChange> told_;
  WindowScheduler scheduler_{{.device = &device_,
                              .counters = &counters_,
                              .context_tokens = 4096,
                              .prefill_chunk_tokens = 64,
                              .store = &store_,
                              .park_after = kParkAfter,
                              .wake = [] {},
                              .on_states =
                                  [this](const std::vector<StateChange>& changes) {
                                    told_.insert(told_.end(), changes.begin(), changes.end());
                                  },
                              .now = [this] { return now_; }}};
  std::vector<PostedEvent> events_;
};

}  // namespace strata::gpu_worker
