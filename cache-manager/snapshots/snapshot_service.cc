#include "cache-manager/snapshots/snapshot_service.h"

#include <atomic>
#include <filesystem>
#include <utility>

#include "cache-manager/snapshots/snapshot_wire.h"
#include "services/rpc/server.h"
#include "services/rpc/stream_writer.h"

namespace strata::cache_manager {

namespace {

// The numbers of attachments go on over all services of the process.
uint64_t next_attachment() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// The stream of one gpu-worker.
class Attachment final : public rpc::StreamWriter<v1::AttachSnapshotsResponse>, public SnapshotHolder {
 public:
  Attachment(uint64_t number, std::weak_ptr<SnapshotActor> actor)
      : number_(number), actor_(std::move(actor)) {}

  void granted(const SnapshotGrant& grant) override {
    v1::AttachSnapshotsResponse response;
    response.set_attachment(grant.attachment);
    response.set_segment(grant.segment);
    response.set_segment_bytes(grant.segment_bytes);
    response.set_instance_id(grant.instance_id);
    send(std::move(response));
  }
  void ended(const Status& why) override { finish(rpc::to_grpc(why)); }

 private:
  void on_cancelled() override {
    if (auto actor = actor_.lock()) actor::tell(actor, SnapshotActor::Detach{.attachment = number_});
    finish(grpc::Status(grpc::StatusCode::CANCELLED, "the gpu-worker has gone"));
  }
  uint64_t number_;
  std::weak_ptr<SnapshotActor> actor_;
};

// The stream of one watcher.
class WatchStream final : public rpc::StreamWriter<v1::WatchSnapshotsResponse> {
 public:
  // False: it has gone, or is cut off now.
  bool tell(const FeedEvent& event) {
    if (over_) return false;
    // The list itself may be of any length.
    if (std::holds_alternative<FeedBegin>(event)) listing_ = true;
    if (!listing_ && waiting() >= kWatchBacklogMax + list_left_) {
      over_ = true;
      cut_off(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                           "this watcher does not read: too many changes wait for it"));
      return false;
    }
    send(to_wire(event));
    if (std::holds_alternative<FeedComplete>(event)) {
      listing_ = false;
      list_left_ = waiting();
    }
    return true;
  }

 private:
  void on_cancelled() override {
    over_ = true;
    finish(grpc::Status(grpc::StatusCode::CANCELLED, "the watcher has gone"));
  }
  std::atomic<bool> over_{false};
  bool listing_ = false;       // with list_left_: of the actor's mailbox
  std::size_t list_left_ = 0;  // messages that waited when the list was complete
};

// Answers a call later. `undelivered` is called if the answer was a success that reached nobody.
class LateAnswer final : public grpc::ServerUnaryReactor {
 public:
  void answer(const Status& status) { Finish(rpc::to_grpc(status)); }
  void answer(std::function<void()> undelivered) {
    undelivered_ = std::move(undelivered);
    Finish(grpc::Status::OK);
  }

 private:
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override {
    if (cancelled_ && undelivered_) undelivered_();
    delete this;
  }
  std::atomic<bool> cancelled_{false};
  std::function<void()> undelivered_;
};

// Answers with what the actor says.
SnapshotActor::Reply<Status> answer_to(grpc::ServerUnaryReactor* reactor) {
  return [reactor](const Status& status) { reactor->Finish(rpc::to_grpc(status)); };
}

grpc::ServerUnaryReactor* refuse(grpc::ServerUnaryReactor* reactor, const Status& why) {
  reactor->Finish(rpc::to_grpc(why));
  return reactor;
}

Status check_path(const std::string& path) {
  if (std::filesystem::path(path).is_absolute()) return {};
  return fail(Code::kInvalidArgument, "path: '{}' is not absolute", path);
}

}  // namespace

SnapshotService::SnapshotService(std::shared_ptr<SnapshotActor> actor) : actor_(std::move(actor)) {}

grpc::ServerWriteReactor<v1::AttachSnapshotsResponse>* SnapshotService::Attach(
    grpc::CallbackServerContext* /*context*/, const v1::AttachSnapshotsRequest* request) {
  const uint64_t number = next_attachment();
  auto attachment = std::make_shared<Attachment>(number, actor_);
  attachment->open();
  auto identity = identity_from_wire(request->identity());
  auto process = sys::ProcessHandle::open(request->pid());
  if (!identity) {
    attachment->ended(identity.error());
  } else if (!process) {
    attachment->ended(process.error());
  } else {
    actor::tell(actor_,
                SnapshotActor::Attach{.attachment = number,
                                      .process = std::make_shared<sys::ProcessHandle>(std::move(*process)),
                                      .identity = std::move(*identity),
                                      .holder = attachment});
  }
  return attachment.get();
}

grpc::ServerUnaryReactor* SnapshotService::Reserve(grpc::CallbackServerContext* context,
                                                   const v1::ReserveSnapshotRequest* request,
                                                   v1::ReserveSnapshotResponse* response) {
  auto message = reserve_from_wire(*request);
  if (!message) return refuse(context->DefaultReactor(), message.error());
  auto* answer = new LateAnswer;  // deletes itself
  message->attachment = request->attachment();
  message->reply = [actor = actor_, answer, response,
                    attachment = request->attachment()](const Result<snapshot::Reservation>& reserved) {
    if (!reserved) return answer->answer(reserved.error());
    write_reservation(*reserved, *response);
    answer->answer([actor, attachment, ticket = reserved->ticket] {
      actor::tell(actor, SnapshotActor::Abandon{
                             .attachment = attachment, .ticket = ticket, .reply = [](const Status&) {}});
    });
  };
  actor::tell(actor_, std::move(*message));
  return answer;
}

grpc::ServerUnaryReactor* SnapshotService::Open(grpc::CallbackServerContext* context,
                                                const v1::OpenSnapshotRequest* request,
                                                v1::OpenSnapshotResponse* response) {
  auto id = hash_from_wire(request->id(), "id");
  if (!id) return refuse(context->DefaultReactor(), id.error());
  auto* answer = new LateAnswer;  // deletes itself
  actor::tell(actor_, SnapshotActor::Open{
                          .attachment = request->attachment(),
                          .id = *id,
                          .reply = [actor = actor_, answer, response, attachment = request->attachment()](
                                       const Result<OpenedSnapshot>& opened) {
                            if (!opened) return answer->answer(opened.error());
                            write_opened(*opened, *response);
                            answer->answer([actor, attachment, ticket = opened->snapshot.ticket] {
                              actor::tell(actor, SnapshotActor::Release{.attachment = attachment,
                                                                        .ticket = ticket,
                                                                        .reply = [](const Status&) {}});
                            });
                          }});
  return answer;
}

grpc::ServerUnaryReactor* SnapshotService::Commit(grpc::CallbackServerContext* context,
                                                  const v1::CommitSnapshotRequest* request,
                                                  v1::CommitSnapshotResponse* /*response*/) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  actor::tell(actor_, SnapshotActor::Commit{.attachment = request->attachment(),
                                            .ticket = request->ticket(),
                                            .checksums = checksums_from_wire(*request),
                                            .reply = answer_to(reactor)});
  return reactor;
}

grpc::ServerUnaryReactor* SnapshotService::Abandon(grpc::CallbackServerContext* context,
                                                   const v1::AbandonSnapshotRequest* request,
                                                   v1::AbandonSnapshotResponse* /*response*/) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  actor::tell(actor_, SnapshotActor::Abandon{.attachment = request->attachment(),
                                             .ticket = request->ticket(),
                                             .reply = answer_to(reactor)});
  return reactor;
}

grpc::ServerUnaryReactor* SnapshotService::Release(grpc::CallbackServerContext* context,
                                                   const v1::ReleaseSnapshotRequest* request,
                                                   v1::ReleaseSnapshotResponse* /*response*/) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  actor::tell(actor_, SnapshotActor::Release{.attachment = request->attachment(),
                                             .ticket = request->ticket(),
                                             .reply = answer_to(reactor)});
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchSnapshotsResponse>* SnapshotService::Watch(
    grpc::CallbackServerContext* /*context*/, const v1::WatchSnapshotsRequest* /*request*/) {
  auto stream = std::make_shared<WatchStream>();
  stream->open();
  actor::tell(actor_, SnapshotActor::Watch{[stream](const FeedEvent& event) { return stream->tell(event); }});
  return stream.get();
}

grpc::ServerUnaryReactor* SnapshotService::List(grpc::CallbackServerContext* context,
                                                const v1::ListSnapshotsRequest* request,
                                                v1::ListSnapshotsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto id = optional_hash_from_wire(request->id(), "id");
  if (!id) return refuse(reactor, id.error());
  actor::tell(actor_, SnapshotActor::List{.id = *id,
                                          .reply = [reactor, response](const Result<SnapshotListing>& list) {
                                            if (!list) return reactor->Finish(rpc::to_grpc(list.error()));
                                            write_listing(*list, *response);
                                            reactor->Finish(grpc::Status::OK);
                                          }});
  return reactor;
}

grpc::ServerUnaryReactor* SnapshotService::Drop(grpc::CallbackServerContext* context,
                                                const v1::DropSnapshotsRequest* request,
                                                v1::DropSnapshotsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto id = optional_hash_from_wire(request->id(), "id");
  if (!id) return refuse(reactor, id.error());
  auto history = optional_hash_from_wire(request->history(), "history");
  if (!history) return refuse(reactor, history.error());
  if (int{!id->is_zero()} + int{!history->is_zero()} + int{request->all()} != 1)
    return refuse(reactor, fail(Code::kInvalidArgument, "one of id, history and all is needed"));
  actor::tell(actor_, SnapshotActor::Drop{.id = *id,
                                          .history = *history,
                                          .all = request->all(),
                                          .reply = [reactor, response](const Result<uint32_t>& dropped) {
                                            if (!dropped)
                                              return reactor->Finish(rpc::to_grpc(dropped.error()));
                                            response->set_dropped(*dropped);
                                            reactor->Finish(grpc::Status::OK);
                                          }});
  return reactor;
}

grpc::ServerUnaryReactor* SnapshotService::Export(grpc::CallbackServerContext* context,
                                                  const v1::ExportSnapshotRequest* request,
                                                  v1::ExportSnapshotResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto id = hash_from_wire(request->id(), "id");
  if (!id) return refuse(reactor, id.error());
  if (Status path = check_path(request->path()); !path.ok()) return refuse(reactor, path);
  actor::tell(actor_, SnapshotActor::Export{.id = *id,
                                            .path = request->path(),
                                            .reply = [reactor, response](const Result<uint64_t>& bytes) {
                                              if (!bytes) return reactor->Finish(rpc::to_grpc(bytes.error()));
                                              response->set_bytes(*bytes);
                                              reactor->Finish(grpc::Status::OK);
                                            }});
  return reactor;
}

grpc::ServerUnaryReactor* SnapshotService::Import(grpc::CallbackServerContext* context,
                                                  const v1::ImportSnapshotRequest* request,
                                                  v1::ImportSnapshotResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto name_space = optional_hash_from_wire(request->name_space(), "name_space");
  if (!name_space) return refuse(reactor, name_space.error());
  if (Status path = check_path(request->path()); !path.ok()) return refuse(reactor, path);
  actor::tell(actor_,
              SnapshotActor::Import{.path = request->path(),
                                    .name_space = *name_space,
                                    .reply = [reactor, response](const Result<snapshot::SnapshotInfo>& info) {
                                      if (!info) return reactor->Finish(rpc::to_grpc(info.error()));
                                      write_snapshot(*info, *response->mutable_snapshot());
                                      reactor->Finish(grpc::Status::OK);
                                    }});
  return reactor;
}

}  // namespace strata::cache_manager
