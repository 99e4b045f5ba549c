#pragma once
// ParkedStore over the cache manager's Snapshots service. A thread of its own keeps it attached: it comes
// back by itself when the cache manager restarts.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gpu-worker/parking/parked_store.h"
#include "services/rpc/open_calls.h"
#include "strata/v1/snapshots.grpc.pb.h"

namespace strata::gpu_worker {

class SnapshotsClient final : public ParkedStore {
 public:
  SnapshotsClient(std::shared_ptr<grpc::Channel> channel, snapshot::StateIdentity identity);
  ~SnapshotsClient() override;

  uint64_t attachment() const override { return attachment_.load(); }
  const snapshot::StateIdentity& identity() const override { return identity_; }
  void on_change(std::function<void()> changed) override;
  Result<ReservedState> reserve(const StateToPark& state) override;
  Status commit(const ReservedState& reserved, const snapshot::CopyChecksums& checksums) override;
  void abandon(const ReservedState& reserved) override;
  void release(const OpenedState& opened) override;
  void open(const snapshot::SnapshotId& id, std::chrono::milliseconds timeout,
            std::function<void(Result<OpenedState>)> reply) override;

 private:
  struct Memory;

  void run();
  Status attach(grpc::ClientContext& context);
  void set_memory(std::shared_ptr<const Memory> memory);
  Result<std::shared_ptr<const Memory>> memory() const;

  const snapshot::StateIdentity identity_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Snapshots::Stub> stub_;
  std::atomic<uint64_t> attachment_{0};

  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  grpc::ClientContext* attaching_ = nullptr;  // the call that is open
  std::shared_ptr<const Memory> memory_;      // null: not attached
  uint64_t attachments_ = 0;

  std::mutex changed_mutex_;
  std::function<void()> changed_;
  rpc::OpenCalls calls_;
  std::thread thread_;
};

}  // namespace strata::gpu_worker
