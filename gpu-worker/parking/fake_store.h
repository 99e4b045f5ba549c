#pragma once
// A store for tests: the real one in this process, with a switch for whatever can go wrong.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu-worker/parking/parked_store.h"
#include "gpu-worker/state_layout.h"
#include "services/base/check.h"
#include "services/shm/segment.h"

namespace strata::gpu_worker {

inline snapshot::StateIdentity fake_identity(const StateLayout& layout) {
  snapshot::StateIdentity identity{.model_fingerprint = "fake",
                                   .numerics = "reproducible",
                                   .kv_format = "tokens",
                                   .layout_version = 1,
                                   .page_tokens = kStatePageTokens,
                                   .page_bytes = layout.page_bytes(),
                                   .fixed_bytes = layout.fixed_bytes(),
                                   .parts = {},
                                   .options = {}};
  for (const StateLayout::Part& part : layout.fixed_parts())
    identity.parts.push_back({.name = part.name, .offset = part.offset, .bytes = part.bytes});
  return identity;
}

class FakeStore final : public ParkedStore {
 public:
  explicit FakeStore(snapshot::StateIdentity identity, uint64_t budget_bytes)
      : store_(make(std::move(identity), budget_bytes)) {
    const shm::Segment& segment = store_.pool().segment();
    auto view = snapshot::RamPoolView::attach(segment.name(), segment.bytes(), segment.instance_id());
    CHECK(view.has_value(), "{}", view.error().message());
    memory_ = std::make_shared<const ParkedMemory>(ParkedMemory{1, std::move(*view)});
  }

  uint64_t attachment() const override { return attachment_; }
  const snapshot::StateIdentity& identity() const override { return store_.identity(); }
  void on_change(std::function<void()> changed) override {
    const std::scoped_lock lock(mutex_);
    changed_ = std::move(changed);
  }

  Result<ReservedState> reserve(const StateToPark& state) override {
    std::unique_lock lock(mutex_);
    reserves.push_back(state);
    changed_state_.wait(lock, [this] { return !held_; });
    if (attachment_ == 0) return fail(Code::kUnavailable, "gone");
    auto reserved = store_.reserve(
        {.identity = store_.identity_digest(),
         .name_space = state.name_space,
         .tokens = state.tokens,
         .generated = state.generated,
         .kind = state.kind,
         .cost_seconds = state.cost_seconds,
         .tail_bytes = state.tokens.size() % identity().page_tokens == 0 ? 0 : identity().page_bytes});
    if (!reserved) return forward_failure(std::move(reserved));
    return ReservedState{memory_, std::move(*reserved)};
  }
  Status commit(const ReservedState& reserved, const snapshot::CopyChecksums& checksums) override {
    const std::scoped_lock lock(mutex_);
    return status_of_result(store_.commit(reserved.reservation.ticket, checksums));
  }
  void abandon(const ReservedState& reserved) override {
    const std::scoped_lock lock(mutex_);
    CHECK(store_.abandon(reserved.reservation.ticket).ok());
    ++abandoned;
  }
  void release(const OpenedState& opened) override {
    const std::scoped_lock lock(mutex_);
    CHECK(store_.release(opened.snapshot.ticket).ok());
    --open_;
  }
  void open(const snapshot::SnapshotId& id, std::chrono::milliseconds /*timeout*/,
            std::function<void(Result<OpenedState>)> reply) override {
    {
      const std::scoped_lock lock(mutex_);
      if (held_) return held_opens_.push_back([this, id, reply = std::move(reply)] { reply(open_now(id)); });
    }
    reply(open_now(id));
  }

  // Whoever comes waits until let_go().
  void hold() {
    const std::scoped_lock lock(mutex_);
    held_ = true;
  }
  void let_go() {
    std::vector<std::function<void()>> opens;
    {
      const std::scoped_lock lock(mutex_);
      held_ = false;
      opens.swap(held_opens_);
    }
    changed_state_.notify_all();
    for (const auto& each : opens) each();
  }
  void set_attachment(uint64_t attachment) {
    const std::scoped_lock lock(mutex_);
    attachment_ = attachment;
    if (changed_) changed_();
  }
  // Flips a bit of the stored bytes: of the fixed part, or of a page.
  void damage(const snapshot::SnapshotId& id, std::optional<uint32_t> page) {
    const std::scoped_lock lock(mutex_);
    auto opened = store_.open(id, 1);
    CHECK(opened.has_value());
    const auto bytes = memory_->view.bytes(page ? opened->pages.at(*page).extent : opened->fixed);
    bytes->front() ^= std::byte{1};
    CHECK(store_.release(opened->ticket).ok());
  }
  std::vector<snapshot::SnapshotInfo> list() {
    const std::scoped_lock lock(mutex_);
    return store_.list();
  }
  snapshot::SnapshotId id_of(const snapshot::Hash128& name_space, const std::vector<int32_t>& tokens,
                             const std::vector<snapshot::TokenRange>& generated) {
    const std::scoped_lock lock(mutex_);
    return store_.keys_of(name_space, tokens, generated)->id;
  }
  bool contains(const snapshot::SnapshotId& id) {
    const std::scoped_lock lock(mutex_);
    return store_.contains(id);
  }
  snapshot::StoreCounters counters() {
    const std::scoped_lock lock(mutex_);
    return store_.counters();
  }
  std::size_t reserve_count() {
    const std::scoped_lock lock(mutex_);
    return reserves.size();
  }
  int open_count() {
    const std::scoped_lock lock(mutex_);
    return open_;
  }
  std::atomic<bool> from_disk{false};  // what open() says
  std::vector<StateToPark> reserves;   // look only when nothing is under way
  uint32_t abandoned = 0;

 private:
  static Status status_of_result(const Result<snapshot::SnapshotInfo>& result) {
    return result ? Status() : result.error();
  }
  static snapshot::SnapshotStore make(snapshot::StateIdentity identity, uint64_t budget_bytes) {
    auto pool =
        snapshot::RamPool::create({.name = shm::segment_name("unittest", "parked", shm::random_instance_id()),
                                   .budget_bytes = budget_bytes,
                                   .available_bytes = [] { return uint64_t{1} << 40; }});
    CHECK(pool.has_value(), "{}", pool.error().message());
    auto store = snapshot::SnapshotStore::create({.identity = std::move(identity),
                                                  .seed = {std::byte{7}},
                                                  .value = {},
                                                  .evictions = {},
                                                  .now_ms = [] { return int64_t{1}; }},
                                                 std::move(*pool));
    CHECK(store.has_value(), "{}", store.error().message());
    return std::move(*store);
  }
  Result<OpenedState> open_now(const snapshot::SnapshotId& id) {
    const std::scoped_lock lock(mutex_);
    if (attachment_ == 0) return fail(Code::kUnavailable, "gone");
    auto opened = store_.open(id, 1);
    if (!opened) return forward_failure(std::move(opened));
    ++open_;
    return OpenedState{.memory = memory_,
                       .snapshot = std::move(*opened),
                       .from_disk = from_disk,
                       .tokens = *store_.tokens(id),
                       .generated = *store_.generated(id)};
  }

  std::mutex mutex_;
  std::condition_variable changed_state_;
  snapshot::SnapshotStore store_;
  std::shared_ptr<const ParkedMemory> memory_;
  std::atomic<uint64_t> attachment_{1};
  std::function<void()> changed_;
  bool held_ = false;
  std::vector<std::function<void()>> held_opens_;
  int open_ = 0;
};

}  // namespace strata::gpu_worker
