#include "gpu-worker/parking/state_transfers.h"

#include <algorithm>
#include <utility>

#include "services/obs/log.h"
#include "services/sys/cpus.h"

namespace strata::gpu_worker {

using Clock = std::chrono::steady_clock;

namespace {

void count(std::atomic<uint64_t>& counter, uint64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace

StateTransfers::StateTransfers(StateTransfersOptions options)
    : options_(std::move(options)), inbox_(std::make_shared<Inbox>()), thread_([this] { run(); }) {}

StateTransfers::~StateTransfers() { stop(); }

uint64_t StateTransfers::park(TransferPlace place, StateToPark state) {
  {
    const std::scoped_lock lock(inbox_->mutex);
    inbox_->parks.push_back({++last_number_, std::move(place), std::move(state)});
  }
  inbox_->ready.notify_one();
  return last_number_;
}

uint64_t StateTransfers::restore(TransferPlace place, const snapshot::SnapshotId& id,
                                 std::vector<int32_t> tokens) {
  auto restore = std::make_unique<Restore>();
  restore->number = ++last_number_;
  restore->place = std::move(place);
  restore->tokens = std::move(tokens);
  restore->begun = Clock::now();
  {
    const std::scoped_lock lock(inbox_->mutex);
    inbox_->opening.insert(last_number_);
  }
  // The thread does not wait for the store, which may have to read from disk first.
  options_.store->open(
      id, options_.open_timeout,
      [inbox = inbox_, waiting = std::shared_ptr(std::move(restore))](Result<OpenedState> opened) {
        auto ready = std::make_unique<Restore>(std::move(*waiting));
        ready->opened = std::move(opened);
        const std::scoped_lock lock(inbox->mutex);
        ready->given_up = inbox->opening.erase(ready->number) == 0;
        inbox->restores.push_back(std::move(ready));
        inbox->ready.notify_one();
      });
  return last_number_;
}

bool StateTransfers::give_up(uint64_t number, const TransferPlace& place) {
  place.stop->store(true);
  const std::scoped_lock lock(inbox_->mutex);
  return inbox_->opening.erase(number) > 0;
}

std::vector<TransferDone> StateTransfers::take_done() {
  const std::scoped_lock lock(inbox_->mutex);
  return std::exchange(inbox_->done, {});
}

void StateTransfers::stop() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(inbox_->mutex);
    inbox_->stop = true;
  }
  inbox_->ready.notify_one();
  thread_.join();
}

void StateTransfers::run() {
  sys::name_this_thread("transfers");
  std::unique_lock lock(inbox_->mutex);
  for (;;) {
    inbox_->ready.wait(lock,
                       [&] { return inbox_->stop || !inbox_->restores.empty() || !inbox_->parks.empty(); });
    if (inbox_->stop) return;
    if (!inbox_->restores.empty()) {
      lock.unlock();
      run_restores();
    } else {
      Park park = std::move(inbox_->parks.front());
      inbox_->parks.pop_front();
      lock.unlock();
      finish({.number = park.number, .status = park_now(park)});
    }
    lock.lock();
  }
}

void StateTransfers::run_restores() {
  for (;;) {
    std::unique_ptr<Restore> restore;
    {
      const std::scoped_lock lock(inbox_->mutex);
      if (inbox_->stop || inbox_->restores.empty()) return;
      restore = std::move(inbox_->restores.front());
      inbox_->restores.pop_front();
    }
    if (restore->given_up) {
      if (restore->opened) options_.store->release(*restore->opened);
      continue;
    }
    finish({.number = restore->number, .status = restore_now(*restore)});
  }
}

void StateTransfers::finish(TransferDone done) {
  {
    const std::scoped_lock lock(inbox_->mutex);
    inbox_->done.push_back(std::move(done));
  }
  if (options_.on_done) options_.on_done();
}

Status StateTransfers::check(const ParkedMemory& memory, const TransferPlace& place) const {
  if (place.stop->load()) return fail(Code::kCancelled, "not wanted any more");
  if (memory.attachment != options_.store->attachment())
    return fail(Code::kAborted, "the store of parked conversations has gone");
  const std::scoped_lock lock(inbox_->mutex);
  if (inbox_->stop) return fail(Code::kCancelled, "the gpu-worker is stopping");
  return {};
}

// --- parking

Status StateTransfers::park_now(const Park& park) {
  if (park.place.stop->load()) return fail(Code::kCancelled, "not wanted any more");
  TRY(const auto reserved, options_.store->reserve(park.state));
  auto checksums = copy_out(park, reserved);
  if (!checksums) {
    options_.store->abandon(reserved);
    count(counters_.park_failures);
    return std::move(checksums).error();
  }
  const Status committed = options_.store->commit(reserved, *checksums);
  count(committed.ok() ? counters_.parked : counters_.park_failures);
  return committed;
}

Result<snapshot::CopyChecksums> StateTransfers::copy_out(const Park& park, const ReservedState& reserved) {
  const auto tokens = static_cast<uint32_t>(park.state.tokens.size());
  snapshot::CopyChecksums checksums;
  for (const snapshot::PageToCopy& page : reserved.reservation.pages) {
    run_restores();
    TRY_OK(check(*reserved.memory, park.place));
    TRY(const auto to, reserved.memory->view.bytes(page.extent));
    TRY_OK(options_.device->read_page(park.place.sequence, page.page_index, tokens, to));
    checksums.pages.push_back(snapshot::checksum64(to));
    count(counters_.park_bytes, to.size());
  }
  TRY_OK(check(*reserved.memory, park.place));
  TRY(const auto fixed, reserved.memory->view.bytes(reserved.reservation.fixed));
  TRY_OK(options_.device->read_slot(park.place.slot, fixed));
  checksums.parts = snapshot::part_checksums(options_.store->identity(), fixed);
  count(counters_.park_bytes, fixed.size());
  return checksums;
}

// --- restoring

Status StateTransfers::restore_now(const Restore& restore) {
  if (!restore.opened) {
    count(counters_.restore_failures);
    return restore.opened.error();
  }
  Status copied = copy_in(restore, *restore.opened);
  options_.store->release(*restore.opened);
  count(copied.ok() ? counters_.restored : counters_.restore_failures);
  if (copied.ok() && options_.on_restored)
    options_.on_restored(std::chrono::duration<double>(Clock::now() - restore.begun).count());
  return copied;
}

Status StateTransfers::copy_in(const Restore& restore, const OpenedState& opened) {
  TRY_OK(check(*opened.memory, restore.place));
  const auto tokens = static_cast<uint32_t>(restore.tokens.size());
  const snapshot::OpenSnapshot& snapshot = opened.snapshot;
  if (opened.tokens != restore.tokens || snapshot.position != tokens ||
      snapshot.pages.size() != state_pages(tokens)) {
    return fail(Code::kFailedPrecondition, "snapshot {} is not the state behind these {} tokens",
                snapshot.id.text(), tokens);
  }
  const StateLayout& layout = options_.device->state_layout();
  TRY(const auto fixed, opened.memory->view.bytes(snapshot.fixed));
  if (fixed.size() != layout.fixed_bytes())
    return fail(Code::kFailedPrecondition, "a fixed part of {} bytes, expected {}", fixed.size(),
                layout.fixed_bytes());
  TRY_OK(snapshot::check_parts(options_.store->identity(), fixed, snapshot.part_checksums));
  TRY_OK(options_.device->write_slot(restore.place.slot, fixed));
  const auto pages = std::make_shared<PagesGate>();
  finish({.number = restore.number,
          .status = {},
          .pages = pages,
          .generated = opened.generated,
          .from_disk = opened.from_disk});
  Status copied = copy_in_pages(restore, opened);
  pages->open(copied);
  return copied;
}

Status StateTransfers::copy_in_pages(const Restore& restore, const OpenedState& opened) {
  const auto tokens = static_cast<uint32_t>(restore.tokens.size());
  const snapshot::OpenSnapshot& snapshot = opened.snapshot;
  const uint64_t page_bytes = options_.device->state_layout().page_bytes();
  for (uint32_t index = 0; index < snapshot.pages.size(); ++index) {
    TRY_OK(check(*opened.memory, restore.place));
    const snapshot::StoredPage& page = snapshot.pages[index];
    TRY(const auto from, opened.memory->view.bytes(page.extent));
    if (page.page_index != index || from.size() != page_bytes)
      return fail(Code::kFailedPrecondition, "page {} of {} bytes, expected page {} of {}", page.page_index,
                  from.size(), index, page_bytes);
    if (snapshot::checksum64(from) != page.checksum)
      return fail(Code::kDataLoss, "page {} of snapshot {} is damaged", index, snapshot.id.text());
    TRY_OK(options_.device->write_page(restore.place.sequence, index, tokens, from));
  }
  return {};
}

}  // namespace strata::gpu_worker
