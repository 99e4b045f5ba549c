#include "services/snapshot/disk_tier.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "services/snapshot/disk_fixture.h"

namespace strata::snapshot {
namespace {

// Fails the steps that a test wants to fail.
struct RefusingFiles : FastFiles {
  Code write_code = Code::kOk;
  Code remove_code = Code::kOk;
  int writes_before = 0;  // so many succeed first
  Status write_at(int fd, std::span<const std::byte> bytes, uint64_t offset,
                  const std::string& path) override {
    if (write_code != Code::kOk && writes_before-- <= 0) return Status(write_code, path + ": refused");
    return FastFiles::write_at(fd, bytes, offset, path);
  }
  Status remove(const std::string& path) override {
    if (remove_code != Code::kOk) return Status(remove_code, path + ": refused");
    return FastFiles::remove(path);
  }
};

class DiskTierTest : public DiskFixture {
 protected:
  static unsigned mode(const std::string& path) {
    struct stat info{};
    return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 0777U : 0;
  }
  Code write_code(const TestTokens& tokens) {
    const auto result = tier_->write(content(tokens), {});
    return result ? Code::kOk : result.error().code();
  }
  static TestTokens conversation(int number, uint32_t count = 8) {
    return test_tokens(count, 1000 * (number + 1));
  }
};

TEST_F(DiskTierTest, GivesBackWhatWasWrittenAlsoAfterARestart) {
  DiskTierOptions real = disk_options();
  real.files = nullptr;  // with syncing
  open_tier(real);
  std::vector<std::pair<SnapshotId, TestTokens>> all;
  for (uint32_t count : {1U, 4U, 7U, 16U}) {
    const TestTokens tokens = test_tokens(count, static_cast<int32_t>(count) * 1000);
    all.emplace_back(written(tokens), tokens);
  }
  for (int start = 0; start < 2; ++start) {
    for (const auto& [id, tokens] : all) EXPECT_EQ(disk_fault(id, tokens), "");
    EXPECT_EQ(tier_->list().size(), 4u);
    EXPECT_EQ(tier_->used_bytes(), blocks());
    open_tier();
  }
  EXPECT_EQ(tier_->counters().index_rebuilt, 0u);
  EXPECT_EQ(tier_->counters().leftovers, 0u);
  EXPECT_EQ(tier_->seed(), StoreSeed{std::byte{7}});
}

TEST_F(DiskTierTest, OnlyThisUserCanReadIt) {
  open_tier();
  written(test_tokens(7));
  EXPECT_EQ(mode(folder_), 0700u);
  EXPECT_EQ(mode(identity_folder()), 0700u);
  EXPECT_EQ(mode(folder_ + "/LOCK"), 0600u);
  for (const std::string& name : names()) EXPECT_EQ(mode(path(name)), 0600u) << name;
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  open_tier();
  EXPECT_EQ(mode(folder_), 0700u);
}

TEST_F(DiskTierTest, PagesAreSharedAndGoWithTheLastWhoNeedsThem) {
  open_tier();
  const SnapshotId a = written(test_tokens(8));
  const SnapshotId b = written(test_tokens(14));
  EXPECT_EQ(names(".page").size(), 3u);
  EXPECT_EQ(tier_->counters().pages_shared, 2u);
  EXPECT_EQ(tier_->info(b)->parent, a);
  EXPECT_TRUE(tier_->drop(a).ok());
  EXPECT_EQ(disk_fault(b, test_tokens(14)), "");
  EXPECT_EQ(tier_->drop(a).code(), Code::kNotFound);
  EXPECT_TRUE(tier_->drop(b).ok());
  for (const char* suffix : {".page", ".fixed", ".tail", ".snapshot"})
    EXPECT_TRUE(names(suffix).empty()) << suffix;
  EXPECT_EQ(tier_->used_bytes(), 0u);
  EXPECT_EQ(tier_->why_gone(a)->cause, EvictionCause::kDropped);
  EXPECT_EQ(tier_->why_gone(a)->tier, Tier::kDisk);
}

TEST_F(DiskTierTest, KeepsItsBudgetByRemovingWhatIsWorthLeast) {
  DiskTierOptions small = disk_options();
  small.budget_bytes =
      75'000;  // a conversation of 8 tokens takes 5 blocks: fixed part 2, pages 1 + 1, manifest 1
  open_tier(small);
  std::vector<SnapshotId> ids;
  for (int i = 0; i < 12; ++i) {
    ids.push_back(written(conversation(i)));
    EXPECT_LE(tier_->used_bytes(), small.budget_bytes);
    EXPECT_EQ(tier_->used_bytes(), blocks());
  }
  EXPECT_EQ(tier_->list().size(), 3u);
  EXPECT_FALSE(tier_->contains(ids[0]));
  EXPECT_EQ(disk_fault(ids[11], conversation(11)), "");
  EXPECT_EQ(tier_->why_gone(ids[0])->cause, EvictionCause::kBudget);
  const auto gone = tier_->manifest(ids[0]);
  ASSERT_FALSE(gone);
  EXPECT_NE(gone.error().message().find("evicted (budget)"), std::string::npos) << gone.error().message();
  EXPECT_EQ(write_code(test_tokens(100)), Code::kOutOfRange);
  EXPECT_EQ(tier_->list().size(), 3u) << "nothing went for one that can never fit";

  small.budget_bytes = 25'000;
  open_tier(small);
  EXPECT_EQ(tier_->list().size(), 1u) << "a budget that was lowered";
  EXPECT_TRUE(tier_->contains(ids[11]));
}

TEST_F(DiskTierTest, AUseIsRememberedOverARestart) {
  DiskTierOptions small = disk_options();
  small.budget_bytes = 55'000;  // two
  open_tier(small);
  const SnapshotId a = written(conversation(1));
  const SnapshotId b = written(conversation(2));
  now_ms_ += 60'000;
  EXPECT_TRUE(tier_->touch(a).ok());
  open_tier(small);
  EXPECT_EQ(tier_->list().front().id, a);
  written(conversation(3));
  EXPECT_TRUE(tier_->contains(a));
  EXPECT_FALSE(tier_->contains(b));
  EXPECT_EQ(tier_->touch(b).code(), Code::kNotFound);
}

TEST_F(DiskTierTest, LeavesFreeSpaceToOthers) {
  DiskTierOptions careful = disk_options();
  careful.free_bytes_min = 1'000'000;
  open_tier(careful);
  const SnapshotId a = written(conversation(1));
  free_bytes_ = 1'005'000;
  EXPECT_EQ(write_code(conversation(2, 40)), Code::kResourceExhausted)
      << "not even removing the other would do";
  EXPECT_TRUE(tier_->contains(a));
  EXPECT_EQ(tier_->counters().refused_full, 1u);
}

TEST_F(DiskTierTest, AFullDiskCostsTheOneThatIsWrittenAndNothingElse) {
  DiskTierOptions options = disk_options();
  const auto files = std::make_shared<RefusingFiles>();
  options.files = files;
  open_tier(options);
  const SnapshotId a = written(test_tokens(8));
  for (int writes = 0; writes < 10;
       ++writes) {  // a page, a tail, the fixed part and a manifest are two writes each
    files->write_code = Code::kResourceExhausted;
    files->writes_before = writes;
    const Code code = write_code(test_tokens(14));
    files->write_code = Code::kOk;
    if (code == Code::kOk) {
      EXPECT_EQ(writes, 8);
      break;
    }
    EXPECT_EQ(code, Code::kResourceExhausted);
    EXPECT_EQ(tier_->used_bytes(), blocks());
    EXPECT_EQ(tier_->list().size(), 1u);
    EXPECT_EQ(names(".tmp").size(), 0u);
    EXPECT_EQ(disk_fault(a, test_tokens(8)), "");
  }
  EXPECT_EQ(tier_->list().size(), 2u);
  EXPECT_EQ(tier_->counters().write_errors, 8u);
}

TEST_F(DiskTierTest, AFolderThatBecameReadOnlyStillGivesWhatItHas) {
  DiskTierOptions options = disk_options();
  options.budget_bytes = 50'000;
  const auto files = std::make_shared<RefusingFiles>();
  options.files = files;
  open_tier(options);
  const SnapshotId a = written(conversation(1));
  const SnapshotId b = written(conversation(2));
  files->remove_code = Code::kPermissionDenied;
  EXPECT_EQ(write_code(conversation(3)), Code::kPermissionDenied) << "room cannot be made";
  EXPECT_EQ(tier_->drop(a).code(), Code::kPermissionDenied);
  EXPECT_EQ(disk_fault(a, conversation(1)), "");
  EXPECT_EQ(disk_fault(b, conversation(2)), "");
}

TEST_F(DiskTierTest, SaysWhyAFolderCannotBeUsed) {
  const auto code = [&](const std::string& folder) {
    DiskTierOptions options = disk_options();
    options.folder = folder;
    const auto opened = DiskTier::open(options);
    return opened ? Code::kOk : opened.error().code();
  };
  EXPECT_EQ(code(parent_ + "/none/below"), Code::kNotFound);
  EXPECT_NE(code("/proc/strata-snapshots"), Code::kOk);
  write_bytes(parent_ + "/file", {});
  EXPECT_EQ(code(parent_ + "/file"), Code::kInvalidArgument);
  DiskTierOptions wrong = disk_options();
  wrong.identity.page_bytes = 0;
  EXPECT_EQ(DiskTier::open(wrong).error().code(), Code::kInvalidArgument);
}

TEST_F(DiskTierTest, OneProcessPerFolder) {
  open_tier();
  DiskTierOptions second = disk_options();
  const auto opened = DiskTier::open(second);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kAlreadyExists);
  EXPECT_NE(opened.error().message().find(fmt::format("process {}: test", ::getpid())), std::string::npos)
      << opened.error().message();
  tier_.reset();
  EXPECT_TRUE(DiskTier::open(second));
}

TEST_F(DiskTierTest, RefusesAContentThatDoesNotFit) {
  open_tier();
  const auto refused = [&](auto change) {
    SnapshotContent other = content(test_tokens(7));
    change(other);
    const auto result = tier_->write(other, {});
    return !result && result.error().code() == Code::kFailedPrecondition;
  };
  EXPECT_TRUE(refused([](auto& c) { c.manifest.seed[3] = std::byte{1}; }));
  EXPECT_TRUE(refused([](auto& c) { c.manifest.part_checksums.clear(); }));
  EXPECT_TRUE(refused([](auto& c) { c.fixed = c.fixed.first(10); }));
  EXPECT_TRUE(refused([](auto& c) { c.pages.clear(); }));
  EXPECT_TRUE(refused([](auto& c) { c.pages[0] = c.pages[0].first(10); }));
  EXPECT_TRUE(refused([](auto& c) { c.tail = {}; }));
  written(test_tokens(7));
  EXPECT_EQ(write_code(test_tokens(7)), Code::kAlreadyExists);
  const SnapshotId id = tier_->list().front().id;
  std::vector<std::byte> page(kTestPageBytes);
  EXPECT_EQ(tier_->read_page(id, 1, page).code(), Code::kOutOfRange);
  EXPECT_EQ(tier_->read_page({}, 0, page).code(), Code::kNotFound);
}

TEST_F(DiskTierTest, ThePaceCanEndAWrite) {
  open_tier();
  const auto result = tier_->write(content(test_tokens(8)),
                                   [](uint64_t) -> Status { return fail(Code::kCancelled, "stopping"); });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::kCancelled);
  EXPECT_EQ(blocks(), 0u);
  EXPECT_EQ(tier_->used_bytes(), 0u);
}

// --- damage

TEST_F(DiskTierTest, ADamagedFileCostsWhoeverNeedsItAndIsCounted) {
  for (const char* suffix : {".fixed", ".tail", ".page"}) {
    std::filesystem::remove_all(folder_);
    open_tier();
    const SnapshotId a = written(test_tokens(6));
    const SnapshotId b = written(test_tokens(7));  // shares the page
    const SnapshotId other = written(conversation(7));
    const auto which = suffix == std::string(".page") ? content(test_tokens(6)).manifest.page_keys[0] : a;
    auto bytes = file_bytes(path(which.text() + suffix));
    bytes[bytes.size() / 2] ^= std::byte{1};
    write_bytes(path(which.text() + suffix), bytes);
    EXPECT_NE(disk_fault(a, test_tokens(6)), "");
    EXPECT_FALSE(tier_->contains(a));
    EXPECT_EQ(tier_->contains(b), suffix != std::string(".page"));
    EXPECT_EQ(tier_->counters().damaged, suffix == std::string(".page") ? 2u : 1u);
    EXPECT_EQ(tier_->why_gone(a)->cause, EvictionCause::kDamaged);
    EXPECT_EQ(disk_fault(other, conversation(7)), "");
    EXPECT_EQ(tier_->used_bytes(), blocks());
  }
}

TEST_F(DiskTierTest, AMissingFileIsNoticedWhenReadAndAtStart) {
  open_tier();
  const SnapshotId a = written(test_tokens(8));
  std::filesystem::remove(path(a.text() + ".fixed"));
  std::vector<std::byte> fixed(kTestFixedBytes);
  EXPECT_EQ(tier_->read_fixed(a, fixed).code(), Code::kDataLoss);
  EXPECT_FALSE(tier_->contains(a));

  const SnapshotId b = written(test_tokens(8));
  const SnapshotId c = written(conversation(3));
  tier_.reset();
  std::filesystem::remove(path(content(test_tokens(8)).manifest.page_keys[1].text() + ".page"));
  open_tier();
  EXPECT_FALSE(tier_->contains(b));
  EXPECT_EQ(disk_fault(c, conversation(3)), "");
  EXPECT_EQ(tier_->counters().damaged, 1u);
  EXPECT_EQ(tier_->used_bytes(), blocks()) << "its other files are gone";
}

TEST_F(DiskTierTest, ADamagedManifestIsDroppedWhenTheIndexDoesNotKnowBetter) {
  open_tier();
  const SnapshotId a = written(test_tokens(8));
  const SnapshotId b = written(conversation(3));
  tier_.reset();
  auto bytes = file_bytes(path(a.text() + ".snapshot"));
  bytes[200] ^= std::byte{1};
  write_bytes(path(a.text() + ".snapshot"), bytes);
  DiskIndex::remove_files(identity_folder());
  open_tier();
  EXPECT_FALSE(tier_->contains(a));
  EXPECT_EQ(disk_fault(b, conversation(3)), "");
  EXPECT_EQ(tier_->counters().damaged, 1u);
  EXPECT_EQ(tier_->used_bytes(), blocks());
}

TEST_F(DiskTierTest, FilesOfOthersAreLeftAloneAndCounted) {
  open_tier();
  const SnapshotId a = written(test_tokens(8));
  tier_.reset();
  write_bytes(path("notes.txt"), std::as_bytes(std::span("mine", 4)));
  write_bytes(path("0123.page"), {});
  write_bytes(folder_ + "/readme", {});
  std::filesystem::create_directory(path("folder.page"));
  std::filesystem::create_symlink("/etc/passwd", path(a.text() + ".page"));
  open_tier();
  EXPECT_EQ(tier_->counters().foreign_files, 5u);
  EXPECT_EQ(disk_fault(a, test_tokens(8)), "");
  EXPECT_EQ(file_bytes(path("notes.txt")).size(), 4u);
}

TEST_F(DiskTierTest, WhatACrashLeftIsRemoved) {
  open_tier();
  const SnapshotId a = written(test_tokens(8));
  const uint64_t before = blocks();
  tier_.reset();
  write_bytes(path("0123456789abcdef0123456789abcdef.page"), std::vector<std::byte>(500));
  write_bytes(path("0123456789abcdef0123456789abcdef.fixed"), std::vector<std::byte>(500));
  write_bytes(path("0123456789abcdef0123456789abcdef.page.tmp"), std::vector<std::byte>(500));
  open_tier();
  EXPECT_EQ(tier_->counters().leftovers, 3u);
  EXPECT_EQ(blocks(), before);
  EXPECT_EQ(names(".tmp").size(), 0u);
  EXPECT_EQ(disk_fault(a, test_tokens(8)), "");
}

// --- the index

TEST_F(DiskTierTest, AnIndexThatIsLostDamagedOrOldIsMadeAnew) {
  open_tier();
  const TestTokens tokens = test_tokens(9);
  const SnapshotId a = written(tokens);
  tier_.reset();
  const auto old_index = file_bytes(path(kIndexFile));
  open_tier();
  const SnapshotId b = written(conversation(4));
  const SnapshotId c = written(conversation(5));
  EXPECT_TRUE(tier_->drop(a).ok());

  const auto breaks = std::vector<std::function<void()>>{
      [&] { DiskIndex::remove_files(identity_folder()); },
      [&] { write_bytes(path(kIndexFile), std::vector<std::byte>(5000, std::byte{0x5a})); },
      [&] { std::filesystem::resize_file(path(kIndexFile), 4096); },
      [&] { write_bytes(path(kIndexFile), old_index); },  // knows a, which is gone, and not b and c
      [&] {
        sqlite3* database = nullptr;
        ASSERT_EQ(sqlite3_open(path(kIndexFile).c_str(), &database), SQLITE_OK);
        EXPECT_EQ(sqlite3_exec(database, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
        sqlite3_close(database);
      },
      [&] {
        sqlite3* database = nullptr;
        ASSERT_EQ(sqlite3_open(path(kIndexFile).c_str(), &database), SQLITE_OK);
        EXPECT_EQ(sqlite3_exec(database, "DELETE FROM pages", nullptr, nullptr, nullptr), SQLITE_OK);
        sqlite3_close(database);
      },
  };
  for (std::size_t i = 0; i < breaks.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "break " << i);
    tier_.reset();
    breaks[i]();
    open_tier();
    EXPECT_EQ(tier_->list().size(), 2u);
    EXPECT_FALSE(tier_->contains(a));
    EXPECT_EQ(disk_fault(b, conversation(4)), "");
    EXPECT_EQ(disk_fault(c, conversation(5)), "");
    EXPECT_EQ(tier_->counters().damaged, 0u);
    open_tier();
    EXPECT_EQ(tier_->counters().index_rebuilt, 0u) << "whole again";
    EXPECT_EQ(tier_->list().size(), 2u);
  }
}

TEST_F(DiskTierTest, TheSeedOutlivesItsFile) {
  open_tier();
  const SnapshotId a = written(test_tokens(8));
  DiskTierOptions other_seed = disk_options();
  other_seed.new_seed = {std::byte{99}};
  open_tier(other_seed);
  EXPECT_EQ(tier_->seed(), StoreSeed{std::byte{7}}) << "the folder's, not the one offered";
  tier_.reset();
  std::filesystem::remove(path("store"));
  open_tier(other_seed);
  EXPECT_EQ(tier_->seed(), StoreSeed{std::byte{7}}) << "from a manifest";
  EXPECT_EQ(disk_fault(a, test_tokens(8)), "");
}

// --- other identities

TEST_F(DiskTierTest, StatesOfAnotherIdentityWaitUntilTheirRoomIsNeeded) {
  open_tier();
  const SnapshotId a = written(test_tokens(8));
  const uint64_t bytes = tier_->used_bytes();
  DiskTierOptions other = disk_options();
  other.identity.model_fingerprint = "another";
  open_tier(other);
  EXPECT_FALSE(tier_->contains(a));
  EXPECT_TRUE(tier_->list().empty());
  EXPECT_EQ(tier_->counters().other_identities, 1u);
  EXPECT_GE(tier_->used_bytes(), bytes) << "they count";
  open_tier();
  EXPECT_EQ(disk_fault(a, test_tokens(8)), "") << "back to that model";

  other.budget_bytes = bytes + 1000;
  open_tier(other);
  EXPECT_FALSE(std::filesystem::exists(identity_folder())) << "with their index they were above this budget";
  open_tier();
  EXPECT_TRUE(tier_->list().empty());
}

}  // namespace
}  // namespace strata::snapshot
