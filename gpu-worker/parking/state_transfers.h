#pragma once
// Copies states between the device and the store of parked ones, on a thread of its own beside windows, page
// by page: no copy is longer than one page or the fixed part. Restores, for which somebody waits, go before
// what is parked, between two of its pages, too. They tell twice: when the fixed part is on the device, with
// which the first missing tokens can be begun, and when the pages are.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>
#include <vector>

#include "gpu-worker/device.h"
#include "gpu-worker/pages_gate.h"
#include "gpu-worker/parking/parked_store.h"

namespace strata::gpu_worker {

// What the transfers count. One writer, any reader.
struct TransferCounters {
  std::atomic<uint64_t> parked{0};      // states stored
  std::atomic<uint64_t> park_bytes{0};  // copied for that
  std::atomic<uint64_t> park_failures{0};
  std::atomic<uint64_t> restored{0};
  std::atomic<uint64_t> restore_failures{0};
};

struct StateTransfersOptions {
  Device* device = nullptr;
  ParkedStore* store = nullptr;
  std::chrono::milliseconds open_timeout{10000};  // a restore from disk
  std::function<void()> on_done = {};             // something is there for take_done(); any thread
  std::function<void(double)> on_restored = {};   // seconds that a restore took, on the transfers' thread
};

// Where a state is on the device, or goes to. The caller sees to it that sequence and slot stay what they are
// until the transfer is done.
struct TransferPlace {
  SequenceId sequence;
  uint32_t slot = 0;
  std::shared_ptr<std::atomic<bool>> stop;  // set: ends with kCancelled as soon as it may
};

struct TransferDone {
  uint64_t number = 0;
  Status status;
  // A restore whose fixed part is there: opens before the end of the transfer, which is told as well.
  std::shared_ptr<const PagesGate> pages = {};
  std::vector<snapshot::TokenRange> generated = {};
  bool from_disk = false;
};

class StateTransfers {
 public:
  explicit StateTransfers(StateTransfersOptions options);
  ~StateTransfers();  // stop()
  StateTransfers(const StateTransfers&) = delete;
  StateTransfers& operator=(const StateTransfers&) = delete;

  // Window loop's thread. Both return the number that the transfer is done under.
  uint64_t park(TransferPlace place, StateToPark state);
  // Errors of a restore: the store's; kFailedPrecondition: the state is not that behind `tokens`; kDataLoss:
  // its bytes are not those that were stored. The gate of its pages has the same then, if there was one.
  uint64_t restore(TransferPlace place, const snapshot::SnapshotId& id, std::vector<int32_t> tokens);
  // True: the store has not answered yet, place and number are free at once. False: it ends soon.
  bool give_up(uint64_t number, const TransferPlace& place);
  std::vector<TransferDone> take_done();
  // Ends what is under way; what is not done then never is. The device is not used any more.
  void stop();

  const TransferCounters& counters() const { return counters_; }

 private:
  struct Park {
    uint64_t number = 0;
    TransferPlace place;
    StateToPark state;
  };
  struct Restore {
    uint64_t number = 0;
    TransferPlace place;
    std::vector<int32_t> tokens;
    std::chrono::steady_clock::time_point begun;
    Result<OpenedState> opened = {};
    bool given_up = false;  // before it was open
  };
  // Outlives this object: answers of the store may come later than that.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable ready;
    bool stop = false;
    std::deque<Park> parks;
    std::unordered_set<uint64_t> opening;
    std::deque<std::unique_ptr<Restore>> restores;  // the store has answered
    std::vector<TransferDone> done;
  };

  void run();
  void run_restores();
  void finish(TransferDone done);
  Status check(const ParkedMemory& memory, const TransferPlace& place) const;
  Status park_now(const Park& park);
  Result<snapshot::CopyChecksums> copy_out(const Park& park, const ReservedState& reserved);
  Status restore_now(const Restore& restore);
  Status copy_in(const Restore& restore, const OpenedState& opened);
  Status copy_in_pages(const Restore& restore, const OpenedState& opened);

  StateTransfersOptions options_;
  std::shared_ptr<Inbox> inbox_;
  uint64_t last_number_ = 0;
  TransferCounters counters_;
  std::thread thread_;
};

}  // namespace strata::gpu_worker
