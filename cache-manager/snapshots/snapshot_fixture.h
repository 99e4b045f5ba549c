#pragma once
// For tests of the snapshot actor: a gpu-worker played by the test, which copies states of a few kilobytes
// whose bytes follow from their tokens. Threads are real (the disk has its own), waits are bounded.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <thread>

#include "cache-manager/snapshots/snapshot_actor.h"
#include "services/actor/actor_system.h"
#include "services/snapshot/disk_fixture.h"

namespace strata::cache_manager {

using snapshot::EvictionCause;
using snapshot::kExtentUnitBytes;
using snapshot::kTestPageBytes;
using snapshot::kTestPageTokens;
using snapshot::SnapshotId;
using snapshot::SnapshotInfo;
using snapshot::SnapshotKind;
using snapshot::test_namespace;
using snapshot::test_tokens;
using snapshot::TestTokens;
using snapshot::Tier;

// A state of 8 tokens takes the fixed part's two units and two pages of one.
inline constexpr uint64_t kStateUnits = 4;
inline constexpr uint32_t kStateTokens = 8;
inline constexpr std::chrono::seconds kPatience{30};

inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// A process that does nothing until it is killed.
class IdleProcess {
 public:
  IdleProcess() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~IdleProcess() { end(); }
  uint32_t pid() const { return static_cast<uint32_t>(pid_); }
  void end() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_;
};

struct TestHolder final : SnapshotHolder {
  void granted(const SnapshotGrant& grant) override {
    const std::lock_guard lock(mutex);
    grants.push_back(grant);
  }
  void ended(const Status& why) override {
    const std::lock_guard lock(mutex);
    ends.push_back(why);
  }
  std::optional<SnapshotGrant> grant() {
    const std::lock_guard lock(mutex);
    return grants.empty() ? std::nullopt : std::optional(grants.back());
  }
  std::optional<Status> end() {
    const std::lock_guard lock(mutex);
    return ends.empty() ? std::nullopt : std::optional(ends.back());
  }
  std::mutex mutex;
  std::vector<SnapshotGrant> grants;
  std::vector<Status> ends;
};

class SnapshotFixture : public testing::Test {
 protected:
  SnapshotFixture() {
    std::string name = testing::TempDir() + "strata-parking-XXXXXX";
    CHECK(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    options_.plan.ram_budget_bytes = 100 * kExtentUnitBytes;
    options_.run_id = run_;
    options_.now_ms = [this] { return ++now_ms_; };
    options_.available_bytes = [this] { return available_bytes_.load(); };
    options_.disk_files = std::make_shared<snapshot::FastFiles>();
  }
  ~SnapshotFixture() override {
    stop();
    shm::remove_stale_segments(run_);
    std::filesystem::remove_all(folder_);
  }

  void use_disk(uint64_t budget_bytes = uint64_t{1} << 30) {
    options_.plan.disk_folder = folder_ + "/disk";
    options_.plan.disk_budget_bytes = budget_bytes;
  }
  void budget_of_states(uint64_t count) {
    options_.plan.ram_budget_bytes = count * kStateUnits * kExtentUnitBytes;
  }

  // --- the cache manager
  void start() {
    metrics_ = std::make_unique<obs::Metrics>(obs::Labels{});
    probe_ = std::make_unique<SnapshotProbe>(*metrics_);
    actors_ = std::make_unique<actor::ActorSystem>(2);
    files_ = std::make_unique<actor::ActorSystem>(1);
    actor_ =
        std::make_shared<SnapshotActor>(actors_->make_executor(), files_->make_executor(), options_, *probe_);
    actor::tell(actor_, SnapshotActor::Start{});
  }
  void stop() {
    if (actor_ == nullptr) return;
    std::promise<void> stopped;
    actor::tell(actor_, SnapshotActor::Stop{[&] { stopped.set_value(); }});
    CHECK(stopped.get_future().wait_for(kPatience) == std::future_status::ready);
    discard();
  }
  void discard() {  // one that has stopped
    files_->stop();
    actors_->stop();
    actor_.reset();
    view_ = {};
  }
  template <class Answer, class Message>
  Answer ask(Message message) {
    auto answer = std::make_shared<std::promise<Answer>>();
    message.reply = [answer](Answer value) { answer->set_value(std::move(value)); };
    auto future = answer->get_future();
    actor::tell(actor_, std::move(message));
    CHECK(future.wait_for(kPatience) == std::future_status::ready);
    return future.get();
  }

  // --- the gpu-worker
  std::shared_ptr<TestHolder> attach_as(uint32_t pid,
                                        const snapshot::StateIdentity& identity = snapshot::test_identity()) {
    auto holder = std::make_shared<TestHolder>();
    auto process = sys::ProcessHandle::open(pid);
    CHECK(process.has_value());
    actor::tell(actor_,
                SnapshotActor::Attach{.attachment = ++attachment_,
                                      .process = std::make_shared<sys::ProcessHandle>(std::move(*process)),
                                      .identity = identity,
                                      .holder = holder});
    CHECK(eventually([&] { return holder->grant() || holder->end(); }));
    if (const auto grant = holder->grant(); grant && !grant->segment.empty()) {
      auto view = snapshot::RamPoolView::attach(grant->segment, grant->segment_bytes, grant->instance_id);
      CHECK(view.has_value(), "{}", view.error().message());
      view_ = std::move(*view);
    }
    return holder;
  }
  std::shared_ptr<TestHolder> attach(const snapshot::StateIdentity& identity = snapshot::test_identity()) {
    return attach_as(static_cast<uint32_t>(::getpid()), identity);
  }
  Result<snapshot::Reservation> reserve(const TestTokens& tokens, SnapshotKind kind = SnapshotKind::kEnd) {
    return ask<Result<snapshot::Reservation>>(
        SnapshotActor::Reserve{.attachment = attachment_,
                               .name_space = test_namespace(),
                               .tokens = tokens,
                               .generated = {},
                               .kind = kind,
                               .cost_seconds = 0.01 * static_cast<double>(tokens.size()),
                               .reply = {}});
  }
  // Copies the state into the segment, as another process would.
  snapshot::CopyChecksums copy(const snapshot::Reservation& reserved, const TestTokens& tokens) {
    snapshot::CopyChecksums checksums;
    const auto fixed = snapshot::test_fixed(tokens);
    put(reserved.fixed, fixed);
    checksums.parts = snapshot::part_checksums(snapshot::test_identity(), fixed);
    for (const snapshot::PageToCopy& page : reserved.pages) {
      const auto bytes = snapshot::test_page(tokens, page.page_index, page.tokens, page.extent.bytes);
      put(page.extent, bytes);
      checksums.pages.push_back(snapshot::checksum64(bytes));
    }
    return checksums;
  }
  Status commit(snapshot::Ticket ticket, snapshot::CopyChecksums checksums) {
    return ask<Status>(SnapshotActor::Commit{
        .attachment = attachment_, .ticket = ticket, .checksums = std::move(checksums), .reply = {}});
  }
  Result<SnapshotId> park(const TestTokens& tokens, SnapshotKind kind = SnapshotKind::kEnd) {
    TRY(const snapshot::Reservation reserved, reserve(tokens, kind));
    TRY_OK(commit(reserved.ticket, copy(reserved, tokens)));
    return reserved.id;
  }
  SnapshotId parked(const TestTokens& tokens, SnapshotKind kind = SnapshotKind::kEnd) {
    auto id = park(tokens, kind);
    CHECK(id.has_value(), "{}", id.error().message());
    return *id;
  }
  Result<OpenedSnapshot> open(const SnapshotId& id) {
    return ask<Result<OpenedSnapshot>>(SnapshotActor::Open{.attachment = attachment_, .id = id, .reply = {}});
  }
  Status release(snapshot::Ticket ticket) {
    return ask<Status>(SnapshotActor::Release{.attachment = attachment_, .ticket = ticket, .reply = {}});
  }
  // Opens it, compares every byte through the own mapping, releases it. "": the state as it was; else what is
  // wrong. from_disk: what the answer must say.
  std::string fault(const SnapshotId& id, const TestTokens& tokens, bool from_disk = false) {
    const auto opened = open(id);
    if (!opened) return opened.error().message();
    std::string what = compare(opened->snapshot, tokens);
    if (opened->from_disk != from_disk) what += opened->from_disk ? " from disk" : " from memory";
    if (const Status released = release(opened->snapshot.ticket); !released.ok()) what += released.message();
    return what;
  }
  std::string compare(const snapshot::OpenSnapshot& open, const TestTokens& tokens) {
    if (open.position != tokens.size()) return fmt::format("position {}", open.position);
    const auto fixed = view_.bytes(open.fixed).value();
    if (!std::ranges::equal(fixed, snapshot::test_fixed(tokens))) return "fixed part";
    if (!check_parts(snapshot::test_identity(), fixed, open.part_checksums).ok()) return "checksums of parts";
    uint64_t covered = 0;
    for (const snapshot::StoredPage& page : open.pages) {
      const auto bytes = view_.bytes(page.extent).value();
      if (bytes.size() != kTestPageBytes ||
          !std::ranges::equal(bytes, snapshot::test_page(tokens, page.page_index, page.tokens, bytes.size())))
        return fmt::format("page {}", page.page_index);
      if (snapshot::checksum64(bytes) != page.checksum) return fmt::format("checksum {}", page.page_index);
      covered += page.tokens;
    }
    return covered == tokens.size() ? "" : fmt::format("pages with {} tokens", covered);
  }

  // --- looking
  SnapshotListing list(const SnapshotId& id = {}) {
    auto listing = ask<Result<SnapshotListing>>(SnapshotActor::List{.id = id, .reply = {}});
    CHECK(listing.has_value(), "{}", listing.error().message());
    return std::move(*listing);
  }
  SnapshotRoom room() { return list().room; }
  bool wait_on_disk(uint32_t count) {
    return eventually([&] { return room().disk.snapshots == count; });
  }
  double metric(const std::string& line_begin) {
    const std::string text = obs::Metrics::to_text(metrics_->collect());
    const std::size_t at = text.find("\n" + line_begin + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + line_begin.size() + 2));
  }

  std::string folder_;
  std::string run_ = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
  SnapshotOptions options_;
  std::atomic<int64_t> now_ms_{1'700'000'000'000};
  std::atomic<uint64_t> available_bytes_{uint64_t{1} << 40};
  std::unique_ptr<obs::Metrics> metrics_;
  std::unique_ptr<SnapshotProbe> probe_;
  std::unique_ptr<actor::ActorSystem> actors_, files_;
  std::shared_ptr<SnapshotActor> actor_;
  uint64_t attachment_ = 0;
  snapshot::RamPoolView view_;

 private:
  void put(const snapshot::Extent& extent, std::span<const std::byte> bytes) {
    const auto into = view_.bytes(extent).value();
    CHECK(into.size() == bytes.size());
    std::ranges::copy(bytes, into.begin());
  }
};

}  // namespace strata::cache_manager
