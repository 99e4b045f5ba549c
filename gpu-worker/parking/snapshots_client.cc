#include "gpu-worker/parking/snapshots_client.h"

#include <unistd.h>

#include <utility>

#include "services/obs/log.h"
#include "services/rpc/server.h"
#include "services/rpc/snapshot_words.h"
#include "services/sys/cpus.h"

namespace strata::gpu_worker {

namespace {

constexpr std::chrono::seconds kCallTimeout{2};  // nobody waits for a file in these
constexpr std::chrono::milliseconds kAttachAgainAfter{250};

snapshot::Extent extent_of(const v1::Extent& extent) {
  return {.offset = extent.offset(), .bytes = extent.bytes()};
}

snapshot::OpenSnapshot snapshot_of(const v1::OpenSnapshotResponse& response, const snapshot::SnapshotId& id) {
  snapshot::OpenSnapshot opened{
      .ticket = response.ticket(),
      .id = id,
      .position = response.tokens(),
      .fixed = extent_of(response.fixed()),
      .part_checksums = {response.part_checksums().begin(), response.part_checksums().end()}};
  for (const v1::StoredPage& page : response.pages()) {
    opened.pages.push_back({.page_index = page.page(),
                            .tokens = page.tokens(),
                            .extent = extent_of(page.extent()),
                            .checksum = page.checksum()});
  }
  return opened;
}

}  // namespace

struct SnapshotsClient::Memory : ParkedMemory {
  Memory(uint64_t attachment_, snapshot::RamPoolView view_, uint64_t wire_)
      : ParkedMemory{attachment_, std::move(view_)}, wire(wire_) {}
  uint64_t wire;  // the cache manager's number of the attachment
};

SnapshotsClient::SnapshotsClient(std::shared_ptr<grpc::Channel> channel, snapshot::StateIdentity identity)
    : identity_(std::move(identity)),
      channel_(std::move(channel)),
      stub_(v1::Snapshots::NewStub(channel_)),
      thread_([this] { run(); }) {}

SnapshotsClient::~SnapshotsClient() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    if (attaching_ != nullptr) attaching_->TryCancel();
  }
  stopping_.notify_one();
  thread_.join();
}

void SnapshotsClient::on_change(std::function<void()> changed) {
  const std::scoped_lock lock(changed_mutex_);
  changed_ = std::move(changed);
}

// --- attaching

void SnapshotsClient::run() {
  sys::name_this_thread("snapshots");
  std::string said;
  for (;;) {
    grpc::ClientContext context;
    {
      const std::scoped_lock lock(mutex_);
      if (stop_) return;
      attaching_ = &context;
    }
    const Status ended = attach(context);
    set_memory(nullptr);
    std::unique_lock lock(mutex_);
    attaching_ = nullptr;
    if (stop_) return;
    // Once for each reason: a cache manager that cannot be attached to is asked again and again.
    if (said != ended.message())
      obs::warn("parking", "conversations are not parked for now: {}", ended.message());
    said = ended.message();
    stopping_.wait_for(lock, kAttachAgainAfter, [this] { return stop_; });
  }
}

// Returns when the attachment has ended, and why.
Status SnapshotsClient::attach(grpc::ClientContext& context) {
  v1::AttachSnapshotsRequest request;
  request.set_pid(static_cast<uint32_t>(::getpid()));
  const std::vector<std::byte> identity = snapshot::serialize(identity_);
  request.set_identity(identity.data(), identity.size());
  // Waits for a cache manager that is starting. No deadline: the call lasts as long as the grant.
  context.set_wait_for_ready(true);
  const auto stream = stub_->Attach(&context, request);
  v1::AttachSnapshotsResponse grant;
  Status failure;
  while (stream->Read(&grant)) {
    if (grant.segment().empty()) continue;  // a budget of 0: nothing is parked
    auto view = snapshot::RamPoolView::attach(grant.segment(), grant.segment_bytes(), grant.instance_id());
    if (!view) {
      failure = view.error();
      context.TryCancel();
      continue;
    }
    set_memory(std::make_shared<const Memory>(++attachments_, std::move(*view), grant.attachment()));
    obs::info("parking", "conversations are parked in {} MiB of shared memory", grant.segment_bytes() >> 20);
  }
  const grpc::Status status = stream->Finish();
  if (!failure.ok()) return failure;
  if (status.ok()) return fail(Code::kUnavailable, "the cache manager ended the grant");
  return rpc::from_grpc(status);
}

void SnapshotsClient::set_memory(std::shared_ptr<const Memory> memory) {
  const uint64_t attachment = memory == nullptr ? 0 : memory->attachment;
  {
    const std::scoped_lock lock(mutex_);
    memory_ = std::move(memory);
  }
  if (attachment_.exchange(attachment) == attachment) return;
  const std::scoped_lock lock(changed_mutex_);
  if (changed_) changed_();
}

Result<std::shared_ptr<const SnapshotsClient::Memory>> SnapshotsClient::memory() const {
  const std::scoped_lock lock(mutex_);
  if (memory_ == nullptr) return fail(Code::kUnavailable, "the store of parked conversations is not there");
  return memory_;
}

// --- storing

Result<ReservedState> SnapshotsClient::reserve(const StateToPark& state) {
  TRY(const auto memory, memory());
  v1::ReserveSnapshotRequest request;
  request.set_attachment(memory->wire);
  request.set_name_space(state.name_space.bytes());
  request.mutable_tokens()->Add(state.tokens.begin(), state.tokens.end());
  rpc::add_ranges(state.generated, *request.mutable_generated());
  request.set_kind(rpc::to_wire(state.kind));
  request.set_cost_seconds(state.cost_seconds);
  v1::ReserveSnapshotResponse response;
  const auto context = calls_.open(kCallTimeout);
  const grpc::Status status = stub_->Reserve(context.get(), request, &response);
  if (!status.ok()) return Failure(rpc::from_grpc(status));
  ReservedState reserved{.memory = memory, .reservation = {}};
  TRY(reserved.reservation.id, snapshot::Hash128::from_bytes(response.id()));
  reserved.reservation.ticket = response.ticket();
  reserved.reservation.fixed = extent_of(response.fixed());
  for (const v1::PageToCopy& page : response.pages()) {
    reserved.reservation.pages.push_back(
        {.page_index = page.page(), .tokens = page.tokens(), .extent = extent_of(page.extent())});
  }
  return reserved;
}

Status SnapshotsClient::commit(const ReservedState& reserved, const snapshot::CopyChecksums& checksums) {
  v1::CommitSnapshotRequest request;
  request.set_attachment(static_cast<const Memory&>(*reserved.memory).wire);
  request.set_ticket(reserved.reservation.ticket);
  request.mutable_part_checksums()->Add(checksums.parts.begin(), checksums.parts.end());
  request.mutable_page_checksums()->Add(checksums.pages.begin(), checksums.pages.end());
  v1::CommitSnapshotResponse response;
  const auto context = calls_.open(kCallTimeout);
  return rpc::from_grpc(stub_->Commit(context.get(), request, &response));
}

void SnapshotsClient::abandon(const ReservedState& reserved) {
  v1::AbandonSnapshotRequest request;
  request.set_attachment(static_cast<const Memory&>(*reserved.memory).wire);
  request.set_ticket(reserved.reservation.ticket);
  v1::AbandonSnapshotResponse response;
  const auto context = calls_.open(kCallTimeout);
  const grpc::Status status = stub_->Abandon(context.get(), request, &response);
  if (!status.ok()) obs::warn("parking", "a reservation was not given back: {}", status.error_message());
}

// --- reading

void SnapshotsClient::release(const OpenedState& opened) {
  struct Call {
    std::shared_ptr<grpc::ClientContext> context;
    v1::ReleaseSnapshotRequest request;
    v1::ReleaseSnapshotResponse response;
  };
  auto call = std::make_shared<Call>();
  call->context = calls_.open(kCallTimeout);
  call->request.set_attachment(static_cast<const Memory&>(*opened.memory).wire);
  call->request.set_ticket(opened.snapshot.ticket);
  stub_->async()->Release(call->context.get(), &call->request, &call->response,
                          [call](const grpc::Status& status) {
                            if (!status.ok())
                              obs::warn("parking", "a snapshot was not let go: {}", status.error_message());
                          });
}

void SnapshotsClient::open(const snapshot::SnapshotId& id, std::chrono::milliseconds timeout,
                           std::function<void(Result<OpenedState>)> reply) {
  auto memory = this->memory();
  if (!memory) return reply(forward_failure(std::move(memory)));
  struct Call {
    std::shared_ptr<grpc::ClientContext> context;
    v1::OpenSnapshotRequest request;
    v1::OpenSnapshotResponse response;
  };
  auto call = std::make_shared<Call>();
  call->context = calls_.open(timeout);
  call->request.set_attachment((*memory)->wire);
  call->request.set_id(id.bytes());
  stub_->async()->Open(call->context.get(), &call->request, &call->response,
                       [call, id, memory = *memory, reply = std::move(reply)](const grpc::Status& status) {
                         if (!status.ok()) return reply(tl::unexpected(rpc::from_grpc(status)));
                         OpenedState opened{
                             .memory = memory,
                             .snapshot = snapshot_of(call->response, id),
                             .from_disk = call->response.from_disk(),
                             .tokens = {call->response.token_ids().begin(), call->response.token_ids().end()},
                             .generated = rpc::ranges_from_wire(call->response.generated())};
                         reply(std::move(opened));
                       });
}

}  // namespace strata::gpu_worker
