#include "gpu-worker/parking/states_service.h"

#include "services/rpc/snapshot_words.h"
#include "services/rpc/stream_writer.h"

namespace strata::gpu_worker {

namespace {

v1::StateSource to_wire(StateSource source) {
  switch (source) {
    case StateSource::kRunning:
      return v1::STATE_SOURCE_RUNNING;
    case StateSource::kLive:
      return v1::STATE_SOURCE_LIVE;
    case StateSource::kCheckpoint:
      return v1::STATE_SOURCE_CHECKPOINT;
  }
  return v1::STATE_SOURCE_UNSPECIFIED;
}

v1::WatchStatesResponse to_wire(const StateChange& change) {
  v1::WatchStatesResponse response;
  if (change.what == StateChange::What::kRemoved) {
    response.mutable_removed()->set_id(change.id);
    response.mutable_removed()->set_taken(change.taken);
    return response;
  }
  v1::StateAdded& added = *response.mutable_added();
  added.set_id(change.id);
  added.set_source(to_wire(change.source));
  added.set_name_space(change.name_space.bytes());
  added.set_shared(change.shared);
  if (change.what == StateChange::What::kSource) return response;
  added.set_kind(rpc::to_wire(change.kind));
  added.mutable_tokens()->Add(change.tokens.begin(), change.tokens.end());
  rpc::add_ranges(change.generated, *added.mutable_generated());
  return response;
}

class WatchStream final : public rpc::StreamWriter<v1::WatchStatesResponse>, public StateFeed::Watcher {
 public:
  WatchStream(const std::string& identity, uint64_t instance_id)
      : identity_(identity), instance_id_(instance_id) {}

  void on_list(const std::vector<StateChange>& list) override {
    v1::WatchStatesResponse begin;
    begin.mutable_begin()->set_instance_id(instance_id_);
    begin.mutable_begin()->set_identity(identity_);
    send(std::move(begin));
    for (const StateChange& state : list) send(to_wire(state));
    v1::WatchStatesResponse complete;
    complete.mutable_complete();
    send(std::move(complete));
  }
  void on_changes(const std::vector<StateChange>& changes) override {
    if (waiting() > kStatesBacklogMax)
      return cut_off(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too far behind"));
    for (const StateChange& change : changes) send(to_wire(change));
  }

 private:
  void on_cancelled() override { finish(grpc::Status(grpc::StatusCode::CANCELLED, "the watcher has gone")); }

  std::string identity_;
  uint64_t instance_id_;
};

}  // namespace

StatesService::StatesService(StateFeed& feed, const snapshot::StateIdentity& identity, uint64_t instance_id)
    : feed_(feed), instance_id_(instance_id) {
  const std::vector<std::byte> bytes = snapshot::serialize(identity);
  identity_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

grpc::ServerWriteReactor<v1::WatchStatesResponse>* StatesService::Watch(
    grpc::CallbackServerContext* /*context*/, const v1::WatchStatesRequest* /*request*/) {
  auto stream = std::make_shared<WatchStream>(identity_, instance_id_);
  stream->open();
  feed_.watch(stream);
  return stream.get();
}

}  // namespace strata::gpu_worker
