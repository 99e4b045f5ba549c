#pragma once
// The store of parked conversations as the gpu-worker sees it (proto/strata/v1/snapshots.proto): memory that
// it copies states into and out of, and somebody who keeps the books.

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "gpu-worker/kept_states.h"
#include "services/base/status.h"
#include "services/snapshot/snapshot_store.h"

namespace strata::gpu_worker {

// The memory of one attachment; stays mapped as long as anybody holds it.
struct ParkedMemory {
  uint64_t attachment = 0;  // as in ParkedStore::attachment()
  snapshot::RamPoolView view;
};

struct ReservedState {
  std::shared_ptr<const ParkedMemory> memory;
  snapshot::Reservation reservation;
};

struct OpenedState {
  std::shared_ptr<const ParkedMemory> memory;
  snapshot::OpenSnapshot snapshot;
  bool from_disk = false;
  std::vector<int32_t> tokens;
  std::vector<snapshot::TokenRange> generated;
};

class ParkedStore {
 public:
  virtual ~ParkedStore() = default;

  // Another number for each time that the store was found; 0: there is none now. Memory of another number
  // than this one must not be written any more. Any thread.
  virtual uint64_t attachment() const = 0;
  virtual const snapshot::StateIdentity& identity() const = 0;  // any thread
  // `changed` is called whenever attachment() has, from any thread, until it is set to nothing.
  virtual void on_change(std::function<void()> changed) = 0;

  // One after another, from one thread; they wait for the answer. Errors: SnapshotStore's, and kAborted or
  // kUnavailable when the store has gone.
  virtual Result<ReservedState> reserve(const StateToPark& state) = 0;
  virtual Status commit(const ReservedState& reserved, const snapshot::CopyChecksums& checksums) = 0;
  virtual void abandon(const ReservedState& reserved) = 0;
  // Does not wait: nobody needs to know.
  virtual void release(const OpenedState& opened) = 0;

  // Any thread; `reply` is called exactly once, from any thread, also before this returns.
  virtual void open(const snapshot::SnapshotId& id, std::chrono::milliseconds timeout,
                    std::function<void(Result<OpenedState>)> reply) = 0;
};

}  // namespace strata::gpu_worker
