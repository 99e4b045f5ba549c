// Snapshots on their way: RAM to disk by the writer's thread, disk to RAM, out to a file and in again.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <map>
#include <semaphore>

#include "services/snapshot/disk_fixture.h"
#include "services/snapshot/disk_load.h"
#include "services/snapshot/disk_writer.h"
#include "services/snapshot/export_file.h"

namespace strata::snapshot {
namespace {

TEST(BandwidthBudget, SpreadsBytesOverTime) {
  BandwidthBudget budget(1'000'000);  // a byte per microsecond
  EXPECT_EQ(budget.wait_us(500, 1000), 0);
  EXPECT_EQ(budget.wait_us(500, 1000), 500);
  EXPECT_EQ(budget.wait_us(100, 1800), 200);
  EXPECT_EQ(budget.wait_us(100, 9000), 0) << "a pause saves nothing up";
  EXPECT_EQ(budget.wait_us(100, 9000), 100);
  BandwidthBudget none(0);
  EXPECT_EQ(none.wait_us(UINT64_MAX, 0), 0);
  EXPECT_EQ(none.wait_us(UINT64_MAX, 0), 0);
}

class DiskMoveTest : public DiskFixture {
 protected:
  SnapshotContent opened(const SnapshotId& id) {
    const auto open = store_->open(id, 1);
    CHECK(open.has_value(), "{}", open.error().message());
    auto made = store_->content(*open);
    CHECK(made.has_value(), "{}", made.error().message());
    return *made;
  }
  // Results by mark, as the writer reports them.
  DiskWriter::Done collect() {
    return [this](uint64_t mark, Result<SnapshotInfo> result) {
      const std::lock_guard lock(mutex_);
      results_.emplace(mark, result ? Code::kOk : result.error().code());
    };
  }
  std::mutex mutex_;
  std::map<uint64_t, Code> results_;
};

TEST_F(DiskMoveTest, ContentIsWhatWasStored) {
  make(100);
  const TestTokens tokens = test_tokens(11);
  const SnapshotContent made = opened(stored(tokens));
  const SnapshotContent expected = content(tokens);
  EXPECT_EQ(made.manifest.id, expected.manifest.id);
  EXPECT_EQ(made.manifest.words, expected.manifest.words);
  EXPECT_EQ(made.manifest.page_keys, expected.manifest.page_keys);
  EXPECT_EQ(made.manifest.page_checksums, expected.manifest.page_checksums);
  EXPECT_EQ(made.manifest.part_checksums, expected.manifest.part_checksums);
  EXPECT_EQ(made.manifest.tail_checksum, expected.manifest.tail_checksum);
  EXPECT_TRUE(std::ranges::equal(made.tail, expected.tail));
  EXPECT_EQ(made.pages.size(), 2u);
  EXPECT_EQ(store_->content({.ticket = 99, .id = {}, .fixed = {}, .part_checksums = {}, .pages = {}})
                .error()
                .code(),
            Code::kNotFound);
}

TEST_F(DiskMoveTest, TheWriterWritesInItsOwnTimeAndReports) {
  open_tier();
  make(100);
  {
    DiskWriter writer(*tier_, {.queue_max = 8, .bytes_per_second = 0}, collect());
    for (int i = 0; i < 3; ++i) {
      const TestTokens tokens = test_tokens(6, 1000 * (i + 1));
      EXPECT_TRUE(writer.enqueue(opened(stored(tokens)), static_cast<uint64_t>(i)));
    }
    EXPECT_TRUE(writer.enqueue(opened(store_->list().front().id), 3)) << "the same again";
    writer.wait_until_idle();
    EXPECT_EQ(writer.waiting(), 0u);
  }
  EXPECT_EQ(results_, (std::map<uint64_t, Code>{
                          {0, Code::kOk}, {1, Code::kOk}, {2, Code::kOk}, {3, Code::kAlreadyExists}}));
  for (int i = 0; i < 3; ++i) {
    const TestTokens tokens = test_tokens(6, 1000 * (i + 1));
    EXPECT_EQ(disk_fault(content(tokens).manifest.id, tokens), "");
  }
}

// A disk that hangs: what waits is bounded, and stopping gives it up.
TEST_F(DiskMoveTest, AFullQueueRefusesAndStoppingGivesUp) {
  struct HangingFiles : FastFiles {
    std::counting_semaphore<> go{0};
    std::atomic<bool> hangs{false};
    Result<sys::FileDescriptor> create(const std::string& path) override {
      if (hangs) go.acquire();
      return FastFiles::create(path);
    }
  };
  const auto files = std::make_shared<HangingFiles>();
  DiskTierOptions slow = disk_options();
  slow.files = files;
  open_tier(slow);
  files->hangs = true;
  {
    DiskWriter writer(*tier_, {.queue_max = 2, .bytes_per_second = 0}, collect());
    ASSERT_TRUE(writer.enqueue(content(test_tokens(6, 1000)), 0));
    while (writer.waiting() > 0) std::this_thread::yield();  // taken by the thread, which hangs
    ASSERT_TRUE(writer.enqueue(content(test_tokens(6, 2000)), 1));
    ASSERT_TRUE(writer.enqueue(content(test_tokens(6, 3000)), 2));
    EXPECT_FALSE(writer.enqueue(content(test_tokens(6, 4000)), 3));
    EXPECT_EQ(writer.waiting(), 2u);
    std::thread stopper([&] { writer.stop(); });
    while (writer.enqueue(content(test_tokens(6, 4000)), 4)) std::this_thread::yield();
    files->hangs = false;
    files->go.release(100);
    stopper.join();
    EXPECT_FALSE(writer.enqueue(content(test_tokens(6, 5000)), 5));
  }
  ASSERT_EQ(results_.size(), 3u) << "every one that was taken, once";
  EXPECT_EQ(results_[1], Code::kCancelled);
  EXPECT_EQ(results_[2], Code::kCancelled);
  EXPECT_EQ(tier_->used_bytes(), blocks());
}

TEST_F(DiskMoveTest, StoppingEndsAWriteThatIsPaced) {
  open_tier();
  {
    DiskWriter writer(*tier_, {.queue_max = 2, .bytes_per_second = 1}, collect());  // hours
    ASSERT_TRUE(writer.enqueue(content(test_tokens(8)), 0));
    while (writer.waiting() > 0) std::this_thread::yield();
  }
  EXPECT_EQ(results_, (std::map<uint64_t, Code>{{0, Code::kCancelled}}));
  EXPECT_EQ(blocks(), 0u);
}

// Readers while the writer works (for the thread sanitizer).
TEST_F(DiskMoveTest, ReadsGoOnWhileAnotherIsWritten) {
  DiskTierOptions small = disk_options();
  small.budget_bytes = 300'000;
  open_tier(small);
  const TestTokens kept = test_tokens(9, 50'000);
  const SnapshotId id = written(kept);
  std::vector<SnapshotContent> contents;
  for (int i = 0; i < 20; ++i) contents.push_back(content(test_tokens(8, 1000 * (i + 1))));
  DiskWriter writer(*tier_, {.queue_max = 32, .bytes_per_second = 0}, collect());
  for (uint64_t i = 0; i < contents.size(); ++i) ASSERT_TRUE(writer.enqueue(contents[i], i));
  for (int i = 0; i < 20; ++i) {
    const std::string fault = disk_fault(id, kept);
    EXPECT_TRUE(fault.empty() || !tier_->contains(id)) << fault;
    EXPECT_LE(tier_->used_bytes(), small.budget_bytes);
    static_cast<void>(tier_->list());
  }
  writer.wait_until_idle();
  EXPECT_EQ(tier_->used_bytes(), blocks());
}

// --- back into RAM

TEST_F(DiskMoveTest, ComesBackIntoRamAfterARestart) {
  open_tier();
  const TestTokens a = test_tokens(8), b = test_tokens(15);
  written(a);
  const SnapshotId id = written(b);
  open_tier();
  make(100);
  stored(a);
  const auto info = load_snapshot(*tier_, *store_, id, 1);
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_TRUE(info->in_ram && info->on_disk);
  EXPECT_EQ(fault(id, b), "");
  EXPECT_EQ(store_->counters().pages_shared, 2u) << "read only what RAM did not have";
  EXPECT_EQ(load_snapshot(*tier_, *store_, id, 1).error().code(), Code::kAlreadyExists);
  EXPECT_EQ(load_snapshot(*tier_, *store_, {.high = 1, .low = 1}, 1).error().code(), Code::kNotFound);
  store_->check_books();
}

TEST_F(DiskMoveTest, ADamagedOneDoesNotComeBackInPart) {
  for (const char* suffix : {".fixed", ".page", ".tail"}) {
    std::filesystem::remove_all(folder_);
    open_tier();
    const SnapshotId id = written(test_tokens(7));
    const std::string name = names(suffix).front();
    auto bytes = file_bytes(path(name));
    bytes.back() ^= std::byte{1};
    write_bytes(path(name), bytes);
    make(100);
    EXPECT_EQ(load_snapshot(*tier_, *store_, id, 1).error().code(), Code::kDataLoss) << suffix;
    EXPECT_FALSE(store_->contains(id));
    EXPECT_EQ(store_->pool().used_bytes(), 0u);
    EXPECT_FALSE(tier_->contains(id));
  }
}

TEST_F(DiskMoveTest, APartThatWasDamagedBeforeItWasWrittenIsFound) {
  open_tier();
  SnapshotContent bad = content(test_tokens(7));
  bad.manifest.part_checksums[1] ^= 1;
  const auto info = tier_->write(bad, {});
  ASSERT_TRUE(info);
  make(100);
  const auto loaded = load_snapshot(*tier_, *store_, info->id, 1);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), Code::kDataLoss);
  EXPECT_NE(loaded.error().message().find("convolution"), std::string::npos) << loaded.error().message();
  EXPECT_EQ(store_->pool().used_bytes(), 0u);
}

TEST_F(DiskMoveTest, TiersWithDifferentSeedsDoNotMix) {
  open_tier();
  const SnapshotId id = written(test_tokens(7));
  StoreOptions other = options();
  other.seed = {std::byte{8}};
  make(other, 100);
  EXPECT_EQ(load_snapshot(*tier_, *store_, id, 1).error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(store_->pool().used_bytes(), 0u);
}

// --- as one file

class ExportTest : public DiskMoveTest {
 protected:
  std::string file() const { return parent_ + "/conversation.strata"; }
  void write_export(const TestTokens& tokens) {
    std::filesystem::remove(file());
    DiskFiles files;
    const auto bytes = export_snapshot(file(), test_identity(), content(tokens), files);
    ASSERT_TRUE(bytes) << bytes.error().message();
    ASSERT_EQ(*bytes, std::filesystem::file_size(file()));
  }
  Result<SnapshotInfo> import(const Hash128& name_space = {}) {
    return import_snapshot(file(), *store_, name_space);
  }
};

TEST_F(ExportTest, GoesToAnotherStoreAndIsTheSameThere) {
  for (uint32_t count : {1U, 4U, 8U, 15U}) {
    const TestTokens tokens = test_tokens(count);
    write_export(tokens);
    StoreOptions other = options();
    other.seed = {std::byte{42}};
    make(other, 100);
    const auto info = import();
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_NE(info->id, content(tokens).manifest.id) << "another seed, another name";
    EXPECT_EQ(info->name_space, test_namespace());
    EXPECT_EQ(fault(info->id, tokens), "");
    EXPECT_EQ(import().error().code(), Code::kAlreadyExists);
    const auto elsewhere = import(test_namespace(9));
    ASSERT_TRUE(elsewhere);
    EXPECT_EQ(elsewhere->name_space, test_namespace(9));
    store_->check_books();
  }
}

TEST_F(ExportTest, IsPrivateHasNoSecretAndReplacesNothing) {
  write_export(test_tokens(7));
  struct stat info{};
  ASSERT_EQ(::stat(file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600u);
  DiskFiles files;
  SnapshotContent secret = content(test_tokens(7));
  EXPECT_EQ(export_snapshot(file(), test_identity(), secret, files).error().code(), Code::kAlreadyExists);
  secret.manifest.seed.fill(std::byte{0xa7});
  ASSERT_TRUE(export_snapshot(parent_ + "/second", test_identity(), secret, files));
  const auto bytes = file_bytes(parent_ + "/second");
  EXPECT_EQ(std::search(bytes.begin(), bytes.end(), secret.manifest.seed.begin(), secret.manifest.seed.end()),
            bytes.end());
}

TEST_F(ExportTest, SharesThePagesThatAreHere) {
  write_export(test_tokens(15));
  make(100);
  stored(test_tokens(8));
  ASSERT_TRUE(import());
  EXPECT_EQ(store_->counters().pages_shared, 2u);
  EXPECT_EQ(fault(content(test_tokens(15)).manifest.id, test_tokens(15)), "");
}

TEST_F(ExportTest, RefusesAnotherModelByName) {
  write_export(test_tokens(7));
  const auto message = [&](auto change) {
    StoreOptions other = options();
    change(other.identity);
    make(other, 100);
    const auto info = import();
    return info ? "imported" : fmt::format("{} {}", code_name(info.error().code()), info.error().message());
  };
  const auto names = [&](const std::string& text, const char* what) {
    return text.find("failed") == 0 && text.find(what) != std::string::npos ? "" : text;
  };
  EXPECT_EQ(names(message([](auto& i) { i.model_fingerprint = "other"; }), "model is f1f2, here other"), "");
  EXPECT_EQ(names(message([](auto& i) { i.numerics = "exact"; }), "numerics"), "");
  EXPECT_EQ(names(message([](auto& i) { i.kv_format = "int8"; }), "KV format"), "");
  EXPECT_EQ(names(message([](auto& i) { i.layout_version = 2; }), "layout version"), "");
  EXPECT_EQ(names(message([](auto& i) { i.page_tokens = 8; }), "page"), "");
  EXPECT_EQ(names(message([](auto& i) { i.options = "x"; }), "options"), "");
  EXPECT_EQ(names(message([](auto& i) { i.parts.pop_back(); }), "parts"), "");
}

TEST_F(ExportTest, NoDamageGoesIntoTheStore) {
  write_export(test_tokens(7));
  make(100);
  const auto good = file_bytes(file());
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    auto bad = good;
    const std::size_t at = random() % good.size();
    const bool cut = i % 3 == 0;
    if (cut) bad.resize(at);
    if (!cut) bad[at] ^= static_cast<std::byte>(1U << random() % 8);
    write_bytes(file(), bad);
    const auto info = import();
    if (info) {  // a bit of a zstd frame that means nothing
      ASSERT_EQ(fault(info->id, test_tokens(7)), "") << at;
      ASSERT_TRUE(store_->drop(info->id).ok());
    }
    ASSERT_TRUE(info || info.error().code() == Code::kDataLoss) << at << " " << info.error().message();
    ASSERT_EQ(store_->pool().used_bytes(), 0u) << at;
  }
  std::filesystem::remove(file());
  EXPECT_EQ(import().error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace strata::snapshot
