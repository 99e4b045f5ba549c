#include "cache-manager/grpc_engine_link.h"

#include <unistd.h>

#include <utility>

#include "services/rpc/server.h"

namespace strata::cache_manager {

namespace {

Result<std::shared_ptr<ArenaMemory>> open_arena(const v1::AttachCacheResponse& response) {
  const bool on_gpu = !response.arena_cuda_ipc().empty();
  const uint64_t slots_bytes = uint64_t{response.slot_count()} * response.slot_bytes();
  const uint64_t least =
      on_gpu ? slots_bytes : shm::arena_bytes(response.slot_count(), response.slot_bytes());
  if (response.arena_bytes() < least) {
    return fail(Code::kFailedPrecondition, "an arena of {} bytes for {} slots of {} bytes",
                response.arena_bytes(), response.slot_count(), response.slot_bytes());
  }
  if (on_gpu) {
    TRY(auto arena, cuda_arena(response.arena_cuda_ipc(), response.arena_bytes()));
    return arena;
  }
  TRY(auto segment,
      shm::Segment::attach(response.arena_segment(), shm::SegmentKind::kArena, shm::kArenaLayoutVersion,
                           response.arena_bytes(), response.arena_instance_id()));
  return segment_arena(std::move(segment));
}

Result<std::shared_ptr<Grant>> map_grant(const v1::AttachCacheResponse& response) {
  auto grant = std::make_shared<Grant>();
  grant->epoch = response.epoch();
  grant->slot_count = response.slot_count();
  grant->slot_bytes = response.slot_bytes();
  TRY(grant->arena, open_arena(response));
  TRY(grant->table, shm::ResidencyTable::attach(response.table_segment(), response.table_bytes(),
                                                response.table_instance_id()));
  TRY(grant->usage, shm::UsageBoard::attach(response.usage_segment(), response.usage_bytes(),
                                            response.usage_instance_id()));
  if (grant->table.header().slots != grant->slot_count) {
    return fail(Code::kFailedPrecondition, "a residency table of {} slots for an arena of {}",
                grant->table.header().slots, grant->slot_count);
  }
  return grant;
}

// One unary call with everything that must outlive it.
template <class Request, class Response>
struct Call {
  grpc::ClientContext context;
  Request request;
  Response response;
};

}  // namespace

// The open Attach call. Owns itself until the call is over.
class GrpcEngineLink::AttachStream final : public grpc::ClientReadReactor<v1::AttachCacheResponse>,
                                           public std::enable_shared_from_this<AttachStream> {
 public:
  explicit AttachStream(AttachEvents events) : events_(std::move(events)) {}

  void start(v1::Residency::Stub& stub, const std::string& model_fingerprint) {
    self_ = shared_from_this();
    request_.set_pid(static_cast<uint32_t>(::getpid()));
    request_.set_model_fingerprint(model_fingerprint);
    request_.set_layout_version(shm::kResidencyLayoutVersion);
    // Waits for a gpu-worker that is starting. No deadline: the call lasts as long as the grant.
    context_.set_wait_for_ready(true);
    stub.async()->Attach(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    Result<std::shared_ptr<Grant>> grant = map_grant(response_);
    if (grant) {
      events_.granted(std::move(*grant));
    } else {
      failure_ = grant.error();
      cancel();
    }
    StartRead(&response_);  // nothing follows: this notices the end
  }
  void OnDone(const grpc::Status& status) override {
    events_.ended(!failure_.ok() ? failure_
                  : status.ok()  ? Status(Code::kUnavailable, "the gpu-worker ended the grant")
                                 : rpc::from_grpc(status));
    self_.reset();
  }

  AttachEvents events_;
  grpc::ClientContext context_;
  v1::AttachCacheRequest request_;
  v1::AttachCacheResponse response_;
  Status failure_;
  std::shared_ptr<AttachStream> self_;
};

GrpcEngineLink::GrpcEngineLink(GrpcEngineLinkOptions options)
    : options_(std::move(options)), stub_(v1::Residency::NewStub(options_.channel)) {}

GrpcEngineLink::~GrpcEngineLink() { detach(); }

void GrpcEngineLink::attach(AttachEvents events) {
  auto stream = std::make_shared<AttachStream>(std::move(events));
  {
    std::lock_guard lock(mutex_);
    stream_ = stream;
  }
  stream->start(*stub_, options_.model_fingerprint);
}

void GrpcEngineLink::detach() {
  std::shared_ptr<AttachStream> stream;
  {
    std::lock_guard lock(mutex_);
    stream = stream_.lock();
  }
  if (stream != nullptr) stream->cancel();
}

void GrpcEngineLink::retire(uint64_t epoch, std::vector<SlotExchange> exchanges,
                            std::function<void(Result<std::vector<bool>>)> reply) {
  auto call = std::make_shared<Call<v1::RetireRequest, v1::RetireResponse>>();
  call->request.set_epoch(epoch);
  for (const SlotExchange& each : exchanges) {
    v1::Exchange& exchange = *call->request.add_exchanges();
    exchange.set_slot(each.slot);
    exchange.set_layer(each.incoming.layer);
    exchange.set_expert(each.incoming.expert);
  }
  rpc::set_deadline(call->context, options_.call_timeout);
  stub_->async()->Retire(&call->context, &call->request, &call->response,
                         [call, reply = std::move(reply)](const grpc::Status& status) {
                           if (!status.ok()) return reply(tl::unexpected(rpc::from_grpc(status)));
                           const auto& accepted = call->response.accepted();
                           reply(std::vector<bool>(accepted.begin(), accepted.end()));
                         });
}

void GrpcEngineLink::land(uint64_t epoch, std::vector<CopiedSlot> slots, std::function<void(Status)> reply) {
  auto call = std::make_shared<Call<v1::LandRequest, v1::LandResponse>>();
  call->request.set_epoch(epoch);
  for (const CopiedSlot& copied : slots) {
    call->request.add_slots(copied.slot);
    if (copied.checksum) call->request.add_checksums(*copied.checksum);
  }
  rpc::set_deadline(call->context, options_.call_timeout);
  stub_->async()->Land(
      &call->context, &call->request, &call->response,
      [call, reply = std::move(reply)](const grpc::Status& status) { reply(rpc::from_grpc(status)); });
}

void GrpcEngineLink::abandon(uint64_t epoch, std::vector<uint32_t> slots, std::function<void(Status)> reply) {
  auto call = std::make_shared<Call<v1::AbandonRequest, v1::AbandonResponse>>();
  call->request.set_epoch(epoch);
  call->request.mutable_slots()->Add(slots.begin(), slots.end());
  rpc::set_deadline(call->context, options_.call_timeout);
  stub_->async()->Abandon(
      &call->context, &call->request, &call->response,
      [call, reply = std::move(reply)](const grpc::Status& status) { reply(rpc::from_grpc(status)); });
}

}  // namespace strata::cache_manager
