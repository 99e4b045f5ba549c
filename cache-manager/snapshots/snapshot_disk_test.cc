// The disk tier behind the actor: everything that is worth it is written through, outlives the process, and
// comes back bit for bit; a disk that fails costs nothing but itself.

#include <gmock/gmock.h>

#include "cache-manager/snapshots/snapshot_fixture.h"

namespace strata::cache_manager {
namespace {

using testing::HasSubstr;

// Fails whatever creates a file while it is told to.
struct FailingFiles final : snapshot::FastFiles {
  Result<sys::FileDescriptor> create(const std::string& path) override {
    if (failing) return fail(Code::kResourceExhausted, "{}: no space left", path);
    return DiskFiles::create(path);
  }
  std::atomic<bool> failing{false};
};

// Files are written only while it is open.
struct GatedFiles final : snapshot::FastFiles {
  Result<sys::FileDescriptor> create(const std::string& path) override {
    if (path.ends_with(".fixed.tmp")) {
      std::unique_lock lock(mutex);
      ++waiting;
      changed.wait(lock, [&] { return open; });
      --waiting;
    }
    return DiskFiles::create(path);
  }
  void let_go() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  std::atomic<int> waiting{0};
};

class SnapshotDiskTest : public SnapshotFixture {
 protected:
  SnapshotDiskTest() { use_disk(); }
  void restart() {
    stop();
    start();
    attach();
  }
  Result<uint32_t> drop(const SnapshotActor::Drop& what) { return ask<Result<uint32_t>>(what); }
  Result<uint64_t> export_to(const SnapshotId& id, const std::string& path) {
    return ask<Result<uint64_t>>(SnapshotActor::Export{.id = id, .path = path, .reply = {}});
  }
  Result<SnapshotInfo> import_from(const std::string& path, const snapshot::Hash128& name_space = {}) {
    return ask<Result<SnapshotInfo>>(
        SnapshotActor::Import{.path = path, .name_space = name_space, .reply = {}});
  }
  std::string identity_folder() const {
    return options_.plan.disk_folder + "/" + digest(snapshot::test_identity()).text();
  }
};

TEST_F(SnapshotDiskTest, WhatIsParkedIsThereAfterARestart) {
  start();
  attach();
  const SnapshotId turn = parked(test_tokens(6), SnapshotKind::kTurn);
  const SnapshotId end = parked(test_tokens(10));
  ASSERT_TRUE(wait_on_disk(2));
  for (const SnapshotInfo& info : list().snapshots) EXPECT_TRUE(info.in_ram && info.on_disk);
  EXPECT_EQ(metric("strata_conv_save_seconds_count{tier=\"disk\"}"), 2);
  restart();
  for (const SnapshotInfo& info : list().snapshots) EXPECT_TRUE(!info.in_ram && info.on_disk);
  EXPECT_EQ(list(end).tokens.tokens, test_tokens(10));
  EXPECT_EQ(fault(end, test_tokens(10), true), "");
  EXPECT_EQ(fault(end, test_tokens(10), false), "") << "it is in memory now";
  EXPECT_EQ(fault(turn, test_tokens(6), true), "");
  EXPECT_EQ(metric("strata_conv_restore_seconds_count{tier=\"disk\"}"), 2);
  EXPECT_GT(metric("strata_conv_bytes{tier=\"disk\"}"), 0);
}

TEST_F(SnapshotDiskTest, IntervalCheckpointsAreNotWorthTheWriting) {
  start();
  attach();
  parked(test_tokens(6), SnapshotKind::kInterval);
  parked(test_tokens(10));
  ASSERT_TRUE(wait_on_disk(1));
  restart();
  ASSERT_EQ(list().snapshots.size(), 1u);
  EXPECT_EQ(list().snapshots[0].position, 10u);
}

TEST_F(SnapshotDiskTest, TwoWhoOpenTheSameShareOneLoad) {
  start();
  attach();
  const SnapshotId id = parked(test_tokens(10));
  ASSERT_TRUE(wait_on_disk(1));
  restart();
  std::array<std::promise<Result<OpenedSnapshot>>, 2> answers;
  for (auto& answer : answers) {
    actor::tell(actor_,
                SnapshotActor::Open{
                    .attachment = attachment_, .id = id, .reply = [&answer](Result<OpenedSnapshot> opened) {
                      answer.set_value(std::move(opened));
                    }});
  }
  for (auto& answer : answers) {
    const auto opened = answer.get_future().get();
    ASSERT_TRUE(opened);
    EXPECT_TRUE(opened->from_disk);
    EXPECT_EQ(compare(opened->snapshot, test_tokens(10)), "");
    EXPECT_TRUE(release(opened->snapshot.ticket).ok());
  }
  EXPECT_EQ(metric("strata_conv_restore_seconds_count{tier=\"disk\"}"), 1);
}

TEST_F(SnapshotDiskTest, ARotationBeyondMemoryComesBackFromDisk) {
  budget_of_states(5);
  start();
  attach();
  for (int turn = 0; turn < 60; ++turn) {
    const TestTokens tokens = test_tokens(kStateTokens, 1000 * (turn % 20));
    // What is being written keeps its memory: whoever parks tries again.
    ASSERT_TRUE(eventually([&] {
      const auto id = park(tokens);
      return id || id.error().code() == Code::kAlreadyExists;
    }));
    ASSERT_LE(room().ram.used_bytes, options_.plan.ram_budget_bytes);
    ASSERT_TRUE(wait_on_disk(std::min(static_cast<uint32_t>(turn) + 1, 20U)));
  }
  for (const SnapshotInfo& info : list().snapshots) {
    const TestTokens tokens = list(info.id).tokens.tokens;
    EXPECT_EQ(fault(info.id, tokens, !list(info.id).snapshots[0].in_ram), "");
    ASSERT_LE(room().ram.used_bytes, options_.plan.ram_budget_bytes);
  }
}

TEST_F(SnapshotDiskTest, TheDiskHasABudgetOfItsOwn) {
  use_disk(16 * kExtentUnitBytes);
  start();
  attach();
  for (int i = 0; i < 6; ++i) {
    parked(test_tokens(kStateTokens, 1000 * i));
    ASSERT_TRUE(eventually([&] { return metric("strata_conv_save_seconds_count{tier=\"disk\"}") == i + 1; }));
    ASSERT_LE(room().disk.used_bytes, options_.plan.disk_budget_bytes);
  }
  EXPECT_GT(metric("strata_conv_evictions_total{cause=\"budget\",tier=\"disk\"}"), 0);
  EXPECT_EQ(room().ram.snapshots, 6u);
}

TEST_F(SnapshotDiskTest, AnotherIdentityFindsItsOwn) {
  start();
  attach();
  const SnapshotId id = parked(test_tokens(8));
  ASSERT_TRUE(wait_on_disk(1));
  snapshot::StateIdentity other = snapshot::test_identity();
  other.numerics = "exact";
  attach(other);
  EXPECT_EQ(list().snapshots.size(), 0u);
  attach();
  EXPECT_EQ(fault(id, test_tokens(8), true), "");
}

TEST_F(SnapshotDiskTest, StoppingWritesWhatWaits) {
  start();
  attach();
  for (int i = 0; i < 8; ++i) parked(test_tokens(kStateTokens, 1000 * i));
  restart();
  EXPECT_EQ(room().disk.snapshots, 8u);
}

// The gpu-worker is told to stop at the same time, and parks what it still has.
TEST_F(SnapshotDiskTest, StoppingWaitsForWhatTheGpuWorkerStillParks) {
  start();
  const auto holder = attach();
  std::atomic<bool> stopped{false};
  actor::tell(actor_,
              SnapshotActor::Stop{.reply = [&] { stopped = true; }, .gpu_worker_patience = kPatience});
  parked(test_tokens(8));
  EXPECT_FALSE(stopped);
  EXPECT_FALSE(holder->end()) << "the attachment goes on";
  actor::tell(actor_, SnapshotActor::Detach{.attachment = attachment_});
  ASSERT_TRUE(eventually([&] { return stopped.load(); }));
  discard();
  start();
  attach();
  EXPECT_EQ(room().disk.snapshots, 1u);
}

TEST_F(SnapshotDiskTest, StoppingDoesNotWaitForAGpuWorkerThatStays) {
  start();
  const auto holder = attach();
  std::atomic<bool> stopped{false};
  actor::tell(actor_, SnapshotActor::Stop{.reply = [&] { stopped = true; },
                                          .gpu_worker_patience = std::chrono::milliseconds(5)});
  ASSERT_TRUE(eventually([&] { return stopped.load(); }));
  EXPECT_EQ(holder->end()->code(), Code::kUnavailable);
  discard();
}

// --- faults

TEST_F(SnapshotDiskTest, ADiskThatFailsIsTriedAgain) {
  const auto files = std::make_shared<FailingFiles>();
  options_.disk_files = files;
  options_.write_pause = std::chrono::milliseconds(1);
  start();
  attach();
  parked(test_tokens(4));
  ASSERT_TRUE(wait_on_disk(1));
  files->failing = true;
  const SnapshotId id = parked(test_tokens(8, 500));
  ASSERT_TRUE(eventually([&] { return !room().disk_problem.empty(); }));
  EXPECT_THAT(room().disk_problem, HasSubstr("no space left"));
  EXPECT_EQ(fault(id, test_tokens(8, 500)), "");
  files->failing = false;
  EXPECT_TRUE(wait_on_disk(2));
  EXPECT_EQ(room().disk_problem, "");
}

TEST_F(SnapshotDiskTest, AFolderThatCannotBeUsedCostsTheDiskTierOnly) {
  options_.plan.disk_folder = folder_ + "/not/there";
  start();
  attach();
  const SnapshotId id = parked(test_tokens(8));
  EXPECT_EQ(fault(id, test_tokens(8)), "");
  EXPECT_THAT(room().disk_problem, HasSubstr("/not/there"));
  EXPECT_EQ(room().disk.snapshots, 0u);
}

TEST_F(SnapshotDiskTest, ADamagedFileIsSaidAndTheSnapshotIsGone) {
  start();
  attach();
  const SnapshotId id = parked(test_tokens(8));
  ASSERT_TRUE(wait_on_disk(1));
  stop();
  const std::string path = identity_folder() + "/" + id.text() + ".fixed";
  auto bytes = snapshot::file_bytes(path);
  bytes.back() ^= std::byte{1};
  snapshot::write_bytes(path, bytes);
  start();
  attach();
  EXPECT_EQ(open(id).error().code(), Code::kDataLoss);
  EXPECT_EQ(list().snapshots.size(), 0u);
  EXPECT_EQ(room().ram.used_bytes, 0u);
  EXPECT_EQ(metric("strata_conv_evictions_total{cause=\"damaged\",tier=\"disk\"}"), 1);
}

// --- dropping

TEST_F(SnapshotDiskTest, DropsOneAndAConversationAndAll) {
  start();
  attach();
  const SnapshotId one = parked(test_tokens(4));
  parked(test_tokens(8));
  parked(test_tokens(8, 500));
  parked(test_tokens(8, 900));
  ASSERT_TRUE(wait_on_disk(4));
  EXPECT_EQ(drop({.id = one}).value(), 1u);
  EXPECT_THAT(open(one).error().message(), HasSubstr("dropped"));
  const SnapshotId history = list().snapshots[0].history;
  EXPECT_EQ(drop({.history = history}).value(), 1u);
  EXPECT_EQ(drop({.history = history}).error().code(), Code::kNotFound);
  EXPECT_EQ(drop({.id = one}).error().code(), Code::kNotFound);
  EXPECT_EQ(drop({.all = true}).value(), 2u);
  EXPECT_EQ(drop({.all = true}).value(), 0u);
  EXPECT_EQ(room().ram.used_bytes, 0u);
  restart();
  EXPECT_EQ(list().snapshots.size(), 0u);
}

TEST_F(SnapshotDiskTest, WhatIsDroppedWhileItIsWrittenDoesNotComeBack) {
  const auto files = std::make_shared<GatedFiles>();
  options_.disk_files = files;
  start();
  attach();
  const SnapshotId id = parked(test_tokens(8));
  ASSERT_TRUE(eventually([&] { return files->waiting == 1; }));
  EXPECT_EQ(drop({.id = id}).value(), 1u);
  EXPECT_EQ(list().snapshots.size(), 0u);
  files->let_go();
  EXPECT_TRUE(eventually(
      [&] { return metric("strata_conv_evictions_total{cause=\"dropped\",tier=\"disk\"}") == 1; }));
  restart();
  EXPECT_EQ(list().snapshots.size(), 0u);
}

TEST_F(SnapshotDiskTest, WhatIsDroppedAndWantedAgainWhileItIsWrittenIsKept) {
  const auto files = std::make_shared<GatedFiles>();
  options_.disk_files = files;
  start();
  attach();
  const SnapshotId id = parked(test_tokens(8));
  ASSERT_TRUE(eventually([&] { return files->waiting == 1; }));
  const std::string path = folder_ + "/conversation";
  ASSERT_TRUE(export_to(id, path));
  for (const bool by_import : {false, true}) {
    EXPECT_EQ(drop({.id = id}).value(), 1u);
    EXPECT_EQ(list().snapshots.size(), 0u);
    const Code code = by_import ? import_from(path).error().code() : reserve(test_tokens(8)).error().code();
    EXPECT_EQ(code, Code::kAlreadyExists);
    EXPECT_EQ(list().snapshots.size(), 1u);
  }
  files->let_go();
  EXPECT_TRUE(wait_on_disk(1));
  EXPECT_EQ(fault(id, test_tokens(8)), "");
}

// What is being written keeps its memory, what waits to be written does not.
TEST_F(SnapshotDiskTest, ASlowDiskDoesNotHoldTheMemory) {
  const auto files = std::make_shared<GatedFiles>();
  options_.disk_files = files;
  budget_of_states(4);
  start();
  attach();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(park(test_tokens(kStateTokens, 1000 * i))) << i;
  EXPECT_EQ(room().ram.snapshots, 4u);
  files->let_go();
  EXPECT_TRUE(wait_on_disk(4));
}

// --- files

TEST_F(SnapshotDiskTest, ExportsAndImports) {
  start();
  attach();
  const TestTokens tokens = test_tokens(10);
  const SnapshotId id = parked(tokens);
  ASSERT_TRUE(wait_on_disk(1));
  restart();
  const std::string path = folder_ + "/conversation";
  EXPECT_GT(export_to(id, path).value(), 0u) << "it is on disk only";
  EXPECT_EQ(export_to(id, path).error().code(), Code::kAlreadyExists);
  EXPECT_EQ(export_to({.high = 1, .low = 1}, path + "2").error().code(), Code::kNotFound);
  EXPECT_EQ(import_from(path).error().code(), Code::kAlreadyExists);
  const auto elsewhere = import_from(path, test_namespace(2));
  ASSERT_TRUE(elsewhere);
  EXPECT_EQ(elsewhere->name_space, test_namespace(2));
  EXPECT_EQ(fault(elsewhere->id, tokens), "");
  EXPECT_TRUE(wait_on_disk(2)) << "what is imported is written through, too";
  EXPECT_EQ(drop({.id = id}).value(), 1u);
  EXPECT_EQ(import_from(path).value().id, id);
  EXPECT_EQ(fault(id, tokens), "");
}

TEST_F(SnapshotDiskTest, ImportsNothingThatIsDamagedOrOfAnotherModel) {
  start();
  EXPECT_EQ(import_from(folder_ + "/none").error().code(), Code::kFailedPrecondition)
      << "nobody has attached";
  EXPECT_EQ(export_to({.high = 1, .low = 1}, folder_ + "/none").error().code(), Code::kFailedPrecondition);
  attach();
  EXPECT_EQ(import_from(folder_ + "/none").error().code(), Code::kNotFound);
  const SnapshotId id = parked(test_tokens(8));
  ASSERT_TRUE(wait_on_disk(1));
  const std::string path = folder_ + "/conversation";
  ASSERT_TRUE(export_to(id, path));
  EXPECT_EQ(drop({.id = id}).value(), 1u);
  auto bytes = snapshot::file_bytes(path);
  bytes[bytes.size() / 2] ^= std::byte{1};
  snapshot::write_bytes(path, bytes);
  EXPECT_EQ(import_from(path).error().code(), Code::kDataLoss);
  EXPECT_EQ(room().ram.used_bytes, 0u);
  bytes[bytes.size() / 2] ^= std::byte{1};
  snapshot::write_bytes(path, bytes);
  snapshot::StateIdentity other = snapshot::test_identity();
  other.numerics = "exact";
  attach(other);
  EXPECT_THAT(import_from(path).error().message(), HasSubstr("numerics is reproducible, here exact"));
}

}  // namespace
}  // namespace strata::cache_manager
