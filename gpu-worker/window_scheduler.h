#pragma once
// Decides what each window computes and what becomes of its tokens. No thread and no clock of its own: the
// window loop drives it, tests step it window by window.
//
// A window holds the pending token of every sequence that is decoding, and at most one chunk of one sequence
// that is still catching up with its known tokens: prompt, then the part of the answer that was already sent
// before a restart. Sequences that are catching up take turns, so that a long prompt delays nobody by more
// than one chunk. What a sequence has read stays on the device when its answer ends, so that a request which
// begins alike reads only the rest (kept_sequences.h); checkpoints are taken on the way.
//
// An answer whose next mask takes longer than there is time between two windows stays out of them until
// another thread has made it.
//
// A generation whose state is parked, or whose place is taken by a conversation that is not parked yet,
// arrives: it waits for the copy while the others' windows go on. Of a parked state it waits for the fixed
// part only; its first window is computed while the pages come, and counts if all of them did.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gpu-worker/device.h"
#include "gpu-worker/event_post.h"
#include "gpu-worker/generation.h"
#include "gpu-worker/kept_sequences.h"
#include "gpu-worker/loop_counters.h"
#include "gpu-worker/parking/parking.h"
#include "gpu-worker/routing_log.h"

namespace strata::gpu_worker {

struct WindowSchedulerOptions {
  Device* device = nullptr;
  LoopCounters* counters = nullptr;
  uint32_t context_tokens = 0;  // tokens that one sequence may hold
  uint32_t prefill_chunk_tokens = 0;
  // Where conversations are parked; null: nowhere.
  ParkedStore* store = nullptr;
  std::chrono::milliseconds park_after{0};
  std::function<void()> wake = {};  // a boundary is wanted; any thread
  std::function<void(double)> on_restored = {};
  // Finishes the constraint of a generation that is not ready, on another thread, and then calls `then`;
  // none: the scheduler does it itself.
  std::function<void(std::shared_ptr<Generation>, std::function<void()> then)> finish_constraint = {};
  // Hears of the states that are kept, on the event thread; none: nobody does.
  std::function<void(std::vector<StateChange>)> on_states = {};
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

class WindowScheduler {
 public:
  using Clock = std::chrono::steady_clock;

  explicit WindowScheduler(const WindowSchedulerOptions& options);

  // At a window boundary. Events are appended to `events`. Also drops those of which another thread found
  // that nothing can follow.
  void drop_cancelled(std::vector<PostedEvent>& events);
  void admit(std::shared_ptr<Generation> generation, std::vector<PostedEvent>& events);
  void end_all(const Status& why, std::vector<PostedEvent>& events);
  // After those: goes on with what waits for copies, and begins new ones.
  void step(std::vector<PostedEvent>& events);
  // After end_all(), again and again: parks what is kept. False: nothing is left to do, or it cannot be done.
  bool park_rest(std::vector<PostedEvent>& events);
  // When the next step() is due, if nothing wakes the loop before.
  std::optional<Clock::time_point> wakes_at() const;

  // From the next window on `log` gets its rows; null: nobody does.
  void record_routing(std::shared_ptr<RoutingLog> log) { recording_ = std::move(log); }
  const std::shared_ptr<RoutingLog>& recording() const { return recording_; }

  bool idle() const;                                                          // there is no window to run
  const TransferCounters& transfers() const { return parking_->counters(); }  // any thread

  bool decoding() const;  // the next window commits a generated token
  // Composes a window, runs it and deals with its tokens. Not when idle.
  void run_window(std::vector<PostedEvent>& events);

 private:
  struct Running {
    std::shared_ptr<Generation> generation;
    SequenceId sequence;
    uint64_t number = 0;  // order of admission
    uint32_t prompt_count = 0;
    std::vector<int32_t> tokens;  // prompt, then the answer so far
    uint32_t fed = 0;             // of those, what the device has seen
    uint32_t reused = 0;          // of those, what it had seen before
    ReuseSource source = ReuseSource::kNone;
    std::string not_restored;
    std::shared_ptr<const PagesGate> pages;   // of the state it goes on from, until the first window is over
    std::vector<CheckpointWish> checkpoints;  // to be taken on the way
    std::size_t next_checkpoint = 0;          // of them
    uint32_t kept = 0;                        // the last that was taken, in tokens
    Clock::time_point admitted;
    Clock::time_point first_window;  // end of catching up
    bool caught_up = false;

    bool decodes() const { return fed >= prompt_count && tokens.size() - fed == 1; }
    bool waits() const;  // for what its next token may be
    uint32_t answer_count() const { return static_cast<uint32_t>(tokens.size()) - prompt_count; }
  };
  struct Arrival {
    std::unique_ptr<Running> running;
    Clock::time_point patient_until;    // for others to be parked first
    std::optional<uint64_t> restoring;  // Parking::restore(), until it has the state
    bool restored = false;              // or it never will be
  };
  struct Part {  // what one sequence has in the window
    Running* running = nullptr;
    uint32_t first_row = 0;
    uint32_t rows = 0;
    bool decode = false;
  };

  enum class Arrived { kNotYet, kYes };
  Arrived arrive(Arrival& arrival, std::vector<PostedEvent>& events);
  Result<std::optional<KeptSequences::Begun>> find_state(Arrival& arrival);
  Result<std::optional<KeptSequences::Begun>> restore(Arrival& arrival, KeptSequences::Patience patience);
  void begin(std::unique_ptr<Running> running, const KeptSequences::Begun& begun,
             std::vector<PostedEvent>& events);
  template <class Which>
  void end_arrivals(const Status& why, std::vector<PostedEvent>& events, Which which);
  void tell_states(std::vector<PostedEvent>& events);
  double seconds_per_token() const;
  void compose();
  void add_rows(Running& running, uint32_t count, bool decode);
  Running* next_catching_up();
  uint32_t chunk_rows(const Running& running) const;
  void take_choice(Running& running, RowChoice& choice, std::vector<PostedEvent>& events);
  void end_part(const Part& part, std::vector<RowChoice>::iterator& choice, std::vector<PostedEvent>& events);
  bool pages_came(Running& running, std::vector<PostedEvent>& events);
  void arrive_again(Running& running, const Status& why);
  static PromptProgressed progress(const Running& running);
  std::vector<CheckpointWish> checkpoints_of(const Running& running) const;
  void plan_checkpoints(const Part& part);
  void take_answer_checkpoint(const Running& running);
  // `state`: whether the device's state of the sequence is that of the tokens fed.
  enum class State { kGood, kUnknown };
  void end(Running& running, GenerationEvent event, std::vector<PostedEvent>& events,
           State state = State::kGood);
  void log_routing(std::vector<PostedEvent>& events);
  void sweep();  // forgets those that have ended
  void count_window(Clock::duration took);
  GenerationEnded summary(const Running& running, EndReason reason) const;

  WindowSchedulerOptions options_;
  KeptSequences sequences_;
  std::optional<Parking> parking_;
  std::vector<Arrival> arrivals_;
  Clock::time_point stepped_{};
  std::vector<std::unique_ptr<Running>> running_;  // by order of admission
  uint64_t admissions_ = 0;
  uint64_t last_caught_up_number_ = 0;  // whose turn it was last
  // The window being run; kept to reuse their memory.
  std::vector<Part> parts_;
  std::vector<DeviceRow> rows_;
  std::vector<RowChoice> choices_;
  std::shared_ptr<RoutingLog> recording_;  // null: nobody records
  std::vector<RoutedRow> routed_rows_;
};

}  // namespace strata::gpu_worker
