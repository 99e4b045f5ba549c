#include "gpu-worker/residency_service.h"

#include <unistd.h>

#include <mutex>
#include <utility>
#include <vector>

#include "gpu-worker/resident_table.h"
#include "services/obs/log.h"
#include "services/rpc/server.h"
#include "services/rpc/stream_writer.h"
#include "services/sys/crash_point.h"
#include "services/sys/process.h"

namespace strata::gpu_worker {

namespace {

constexpr uint32_t kFenceTimeoutMs = 1000;

std::vector<uint32_t> slots_of(const google::protobuf::RepeatedField<uint32_t>& slots) {
  return {slots.begin(), slots.end()};
}

v1::AttachCacheResponse grant(Device& device, uint64_t epoch) {
  v1::AttachCacheResponse response;
  response.set_epoch(epoch);
  ArenaHandle arena = device.arena();
  response.set_arena_segment(arena.segment);
  response.set_arena_cuda_ipc(arena.cuda_ipc);
  response.set_arena_bytes(arena.bytes);
  response.set_arena_instance_id(arena.instance_id);
  response.set_slot_count(arena.slot_count);
  response.set_slot_bytes(arena.slot_bytes);
  const shm::Segment& table = device.residents().segment();
  response.set_table_segment(table.name());
  response.set_table_bytes(table.bytes());
  response.set_table_instance_id(table.instance_id());
  const shm::Segment& usage = device.usage().segment();
  response.set_usage_segment(usage.name());
  response.set_usage_bytes(usage.bytes());
  response.set_usage_instance_id(usage.instance_id());
  return response;
}

}  // namespace

// Who holds the grant. Outlives the service, because streams and replies that are on their way refer to it.
struct ResidencyService::Holder {
  WindowLoop* loop = nullptr;
  ResidentTable* residents = nullptr;
  std::mutex mutex;
  std::shared_ptr<Attachment> attachment;  // null: nobody
  sys::ProcessHandle last_process;         // of the present or last holder
};

// The stream of one cache manager; open as long as it holds the grant.
class ResidencyService::Attachment final : public rpc::StreamWriter<v1::AttachCacheResponse> {
 public:
  explicit Attachment(std::shared_ptr<Holder> holder) : holder_(std::move(holder)) {}

  std::shared_ptr<Attachment> self() { return std::static_pointer_cast<Attachment>(shared_from_this()); }
  uint64_t epoch = 0;  // written by the window loop when the attachment begins

 private:
  void on_cancelled() override {
    auto attachment = self();
    {
      std::lock_guard lock(holder_->mutex);
      if (holder_->attachment == attachment) holder_->attachment = nullptr;
    }
    // The beginning went through the same inbox before, so the epoch is known by then. A full inbox does no
    // harm: what was reserved stays out of use until the next attachment drops it.
    Status posted = holder_->loop->at_boundary(
        [residents = holder_->residents, attachment] { residents->end_attachment(attachment->epoch); },
        [] { obs::info("residency", "the cache manager has gone; residency stays as it is"); });
    if (posted.code() == Code::kResourceExhausted) {
      obs::warn("residency", "the end of an attachment was not applied: {}", posted.message());
    }
    finish(grpc::Status(grpc::StatusCode::CANCELLED, "the cache manager has gone"));
  }

  std::shared_ptr<Holder> holder_;
};

ResidencyService::ResidencyService(ResidencyServiceOptions options)
    : options_(std::move(options)), holder_(std::make_shared<Holder>()) {
  holder_->loop = options_.loop;
  holder_->residents = &options_.device->residents();
}

std::function<bool()> ResidencyService::attached() const {
  return [holder = holder_] {
    std::lock_guard lock(holder->mutex);
    return holder->attachment != nullptr;
  };
}

Status ResidencyService::check_caller(const v1::AttachCacheRequest& request) const {
  if (request.layout_version() != shm::kResidencyLayoutVersion) {
    return fail(Code::kFailedPrecondition,
                "layout version {}: the gpu-worker has {}; both must be of one version of Strata",
                request.layout_version(), shm::kResidencyLayoutVersion);
  }
  if (request.model_fingerprint() != options_.model_fingerprint) {
    return fail(Code::kFailedPrecondition, "the cache manager has another model: {}, the gpu-worker's is {}",
                request.model_fingerprint(), options_.model_fingerprint);
  }
  return {};
}

grpc::ServerWriteReactor<v1::AttachCacheResponse>* ResidencyService::Attach(
    grpc::CallbackServerContext* /*context*/, const v1::AttachCacheRequest* request) {
  auto attachment = std::make_shared<Attachment>(holder_);
  attachment->open();
  auto refuse = [&](const Status& status) {
    attachment->finish(rpc::to_grpc(status));
    return attachment.get();
  };
  if (Status checked = check_caller(*request); !checked.ok()) return refuse(checked);
  auto process = sys::ProcessHandle::open(request->pid());
  if (!process) return refuse(process.error());

  std::shared_ptr<Attachment> previous;
  {
    std::lock_guard lock(holder_->mutex);
    const sys::ProcessHandle& last = holder_->last_process;
    if (last.fd() >= 0 && last.pid() != request->pid() && !last.gone()) {
      obs::warn("residency", "cache manager {} takes over from {}, which is killed first", request->pid(),
                last.pid());
      if (!last.kill_and_wait(kFenceTimeoutMs)) {
        return refuse(fail(Code::kUnavailable, "the cache manager with pid {} cannot be ended", last.pid()));
      }
    }
    holder_->last_process = std::move(*process);
    previous = std::exchange(holder_->attachment, attachment);
  }
  if (previous != nullptr) {
    previous->finish(grpc::Status(grpc::StatusCode::ABORTED, "another cache manager has attached"));
  }

  Device* device = options_.device;
  Status posted = options_.loop->at_boundary(
      [device, attachment] { attachment->epoch = device->residents().begin_attachment(); },
      [device, attachment, pid = request->pid()] {
        obs::info("residency", "cache manager {} attached", pid);
        attachment->send(grant(*device, attachment->epoch));
      });
  if (posted.ok()) return attachment.get();
  {
    std::lock_guard lock(holder_->mutex);
    if (holder_->attachment == attachment) holder_->attachment = nullptr;
  }
  return refuse(posted);
}

grpc::ServerUnaryReactor* ResidencyService::change(grpc::CallbackServerContext* context,
                                                   std::function<Status()> apply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto outcome = std::make_shared<Status>();
  Status posted = options_.loop->at_boundary([apply = std::move(apply), outcome] { *outcome = apply(); },
                                             [reactor, outcome] { reactor->Finish(rpc::to_grpc(*outcome)); });
  if (!posted.ok()) reactor->Finish(rpc::to_grpc(posted));
  return reactor;
}

grpc::ServerUnaryReactor* ResidencyService::Retire(grpc::CallbackServerContext* context,
                                                   const v1::RetireRequest* request,
                                                   v1::RetireResponse* response) {
  sys::crash_point("retire-asked");
  std::vector<ExpertExchange> exchanges;
  for (const v1::Exchange& exchange : request->exchanges()) {
    exchanges.push_back({.slot = exchange.slot(), .layer = exchange.layer(), .expert = exchange.expert()});
  }
  return change(context, [residents = holder_->residents, epoch = request->epoch(),
                          exchanges = std::move(exchanges), response] {
    auto accepted = residents->retire(epoch, exchanges);
    if (!accepted) return accepted.error();
    for (bool each : *accepted) response->add_accepted(each);
    sys::crash_point("retire-applied");
    return Status();
  });
}

grpc::ServerUnaryReactor* ResidencyService::Land(grpc::CallbackServerContext* context,
                                                 const v1::LandRequest* request, v1::LandResponse* response) {
  sys::crash_point("land-asked");
  std::vector<uint64_t> checksums(request->checksums().begin(), request->checksums().end());
  return change(context, [residents = holder_->residents, epoch = request->epoch(),
                          slots = slots_of(request->slots()), checksums = std::move(checksums), response] {
    auto residency_epoch = residents->land(epoch, slots, checksums);
    if (!residency_epoch) return residency_epoch.error();
    sys::crash_point("land-applied");
    response->set_residency_epoch(*residency_epoch);
    return Status();
  });
}

grpc::ServerUnaryReactor* ResidencyService::Abandon(grpc::CallbackServerContext* context,
                                                    const v1::AbandonRequest* request,
                                                    v1::AbandonResponse* /*response*/) {
  return change(context, [residents = holder_->residents, epoch = request->epoch(),
                          slots = slots_of(request->slots())] { return residents->abandon(epoch, slots); });
}

}  // namespace strata::gpu_worker
