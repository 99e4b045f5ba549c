#pragma once
// The Snapshots service (proto/strata/v1/snapshots.proto): questions and demands to the snapshot actor.

#include <memory>

#include "cache-manager/snapshots/snapshot_actor.h"
#include "strata/v1/snapshots.grpc.pb.h"

namespace strata::cache_manager {

class SnapshotService final : public v1::Snapshots::CallbackService {
 public:
  explicit SnapshotService(std::shared_ptr<SnapshotActor> actor);

  grpc::ServerWriteReactor<v1::AttachSnapshotsResponse>* Attach(
      grpc::CallbackServerContext* context, const v1::AttachSnapshotsRequest* request) override;
  // Answers of these two that do not arrive are taken back: nobody else could.
  grpc::ServerUnaryReactor* Reserve(grpc::CallbackServerContext* context,
                                    const v1::ReserveSnapshotRequest* request,
                                    v1::ReserveSnapshotResponse* response) override;
  grpc::ServerUnaryReactor* Open(grpc::CallbackServerContext* context, const v1::OpenSnapshotRequest* request,
                                 v1::OpenSnapshotResponse* response) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context,
                                   const v1::CommitSnapshotRequest* request,
                                   v1::CommitSnapshotResponse* response) override;
  grpc::ServerUnaryReactor* Abandon(grpc::CallbackServerContext* context,
                                    const v1::AbandonSnapshotRequest* request,
                                    v1::AbandonSnapshotResponse* response) override;
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context,
                                    const v1::ReleaseSnapshotRequest* request,
                                    v1::ReleaseSnapshotResponse* response) override;
  // One that lies more than kWatchBacklogMax changes behind is cut off with RESOURCE_EXHAUSTED.
  grpc::ServerWriteReactor<v1::WatchSnapshotsResponse>* Watch(
      grpc::CallbackServerContext* context, const v1::WatchSnapshotsRequest* request) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const v1::ListSnapshotsRequest* request,
                                 v1::ListSnapshotsResponse* response) override;
  grpc::ServerUnaryReactor* Drop(grpc::CallbackServerContext* context,
                                 const v1::DropSnapshotsRequest* request,
                                 v1::DropSnapshotsResponse* response) override;
  grpc::ServerUnaryReactor* Export(grpc::CallbackServerContext* context,
                                   const v1::ExportSnapshotRequest* request,
                                   v1::ExportSnapshotResponse* response) override;
  grpc::ServerUnaryReactor* Import(grpc::CallbackServerContext* context,
                                   const v1::ImportSnapshotRequest* request,
                                   v1::ImportSnapshotResponse* response) override;

 private:
  std::shared_ptr<SnapshotActor> actor_;
};

inline constexpr std::size_t kWatchBacklogMax = 1024;

}  // namespace strata::cache_manager
