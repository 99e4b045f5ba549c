#pragma once
// Which states are parked when, and how restores get their place: between the sequences on the device, which
// belong to the window loop, and the transfers, which have a thread of their own. Used by the window loop's
// thread, at window boundaries.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "gpu-worker/kept_sequences.h"
#include "gpu-worker/parking/state_transfers.h"

namespace strata::gpu_worker {

struct ParkingOptions {
  Device* device = nullptr;
  KeptSequences* sequences = nullptr;
  ParkedStore* store = nullptr;
  std::chrono::milliseconds park_after{0};
  std::function<double()> seconds_per_token;     // what reading a prompt takes
  std::function<void()> wake;                    // look at the next boundary, which is now; any thread
  std::function<void(double)> on_restored = {};  // seconds
};

class Parking {
 public:
  using Clock = KeptSequences::Clock;

  explicit Parking(ParkingOptions options);
  ~Parking();
  Parking(const Parking&) = delete;
  Parking& operator=(const Parking&) = delete;

  // First at a boundary: takes in what is done.
  void take_in(Clock::time_point now);
  // Last: parks what is due, or in the way. Whoever waited for a copy to end has had his turn in between.
  void park_next(Clock::time_point now);
  bool parks() const { return parking_.has_value(); }  // something is being copied out
  // When the next boundary should be, if nothing wakes the loop before.
  std::optional<Clock::time_point> wakes_at() const;

  // Brings the state behind `tokens` into a sequence; its number. Errors: KeptSequences::place(), and
  // kFailedPrecondition: no store is attached.
  struct Wanted {
    snapshot::SnapshotId id;
    uint32_t tokens = 0;
  };
  Result<uint64_t> restore(const Wanted& wanted, std::span<const int32_t> tokens,
                           const snapshot::Hash128& name_space, uint32_t shared_tokens,
                           KeptSequences::Patience patience);
  struct Restored {
    Status status;  // not ok: there is no sequence
    SequenceId sequence;
    bool from_disk = false;
    std::shared_ptr<const PagesGate> pages = {};  // before the sequence's state is used, or it is closed
  };
  // Nothing: not done yet. Only once.
  std::optional<Restored> take_restored(uint64_t number);
  // Nobody waits for it any more.
  void give_up(uint64_t number);

  const TransferCounters& counters() const { return transfers_.counters(); }

 private:
  struct Parked {
    uint64_t number = 0;
    KeptSequences::ToPark what;
  };
  struct Restoring {
    KeptSequences::Lock lock;
    std::vector<int32_t> tokens;
    bool wanted = true;  // somebody will take the result
    bool begun = false;  // the sequence holds the state, but for its pages
    bool ended = false;  // nothing is copied, the lock is over
    std::optional<Restored> result = {};
  };

  void follow_store();
  void park_done(const TransferDone& done, Clock::time_point now);
  void restore_begun(Restoring& restoring, TransferDone& done);
  void restore_ended(Restoring& restoring, Status status);

  ParkingOptions options_;
  uint64_t attachment_ = 0;
  std::optional<Parked> parking_;
  Clock::time_point park_again_{};  // not before: the store does not answer
  Clock::time_point looked_{};      // last, for what is due
  std::map<uint64_t, Restoring> restoring_;
  StateTransfers transfers_;  // ends first
};

}  // namespace strata::gpu_worker
