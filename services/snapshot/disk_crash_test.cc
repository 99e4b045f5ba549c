// The process ends at every possible step of the disk tier's work, in the middle of a write too, and with a
// kill at random moments; after each a fresh start must find a consistent folder: every snapshot that was
// committed before is whole, the one in progress is there completely or not at all, nothing is left over, and
// the count of bytes is right.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <thread>

#include "services/snapshot/disk_fixture.h"

namespace strata::snapshot {
namespace {

// The world ends at step `last`: nothing that comes later happens. A write that is the last step writes only
// a part.
struct EndingFiles : FastFiles {
  explicit EndingFiles(uint64_t last, double part) : last_step(last), last_part(part) {}
  uint64_t last_step;
  double last_part;
  uint64_t step = 0;
  bool ended_in_write = false;

  bool over() { return ++step >= last_step; }
  static Status ended() { return Status(Code::kUnavailable, "the process has ended"); }

  Result<sys::FileDescriptor> create(const std::string& path) override {
    if (over()) return Failure(ended());
    return FastFiles::create(path);
  }
  Status write_at(int fd, std::span<const std::byte> bytes, uint64_t offset,
                  const std::string& path) override {
    if (++step > last_step) return ended();
    if (step < last_step) return FastFiles::write_at(fd, bytes, offset, path);
    ended_in_write = true;
    const auto part = static_cast<std::size_t>(last_part * static_cast<double>(bytes.size()));
    static_cast<void>(FastFiles::write_at(fd, bytes.first(part), offset, path));
    return ended();
  }
  Status sync(int fd, const std::string& path) override {
    return over() ? ended() : FastFiles::sync(fd, path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    return over() ? ended() : FastFiles::rename(from, to);
  }
  Status remove(const std::string& path) override { return over() ? ended() : FastFiles::remove(path); }
  Status sync_folder(const std::string& path) override {
    return over() ? ended() : FastFiles::sync_folder(path);
  }
};

class DiskCrashTest : public DiskFixture {
 protected:
  // Opens the folder as the next process would, and checks all of it.
  void check_folder(const std::vector<TestTokens>& must, const std::vector<TestTokens>& may) {
    open_tier(budget_of(100));
    std::size_t found = 0;
    for (const TestTokens& tokens : must) {
      ASSERT_EQ(disk_fault(content(tokens).manifest.id, tokens), "");
      ++found;
    }
    for (const TestTokens& tokens : may) {
      const SnapshotId id = content(tokens).manifest.id;
      if (!tier_->contains(id)) continue;
      ASSERT_EQ(disk_fault(id, tokens), "");
      ++found;
    }
    ASSERT_EQ(tier_->list().size(), found) << "and nothing else";
    ASSERT_EQ(tier_->used_bytes(), blocks()) << "nothing is left over";
    ASSERT_EQ(names(".tmp").size(), 0u);
    // And it works.
    const TestTokens one_more = test_tokens(5, 77'000);
    const SnapshotId id = written(one_more);
    ASSERT_EQ(disk_fault(id, one_more), "");
  }
  // Of so many snapshots of 8 tokens (6 blocks with what a write reserves at most).
  DiskTierOptions budget_of(uint64_t snapshots) {
    DiskTierOptions made = disk_options();
    made.budget_bytes = snapshots * 6 * kExtentUnitBytes;
    return made;
  }
  const TestTokens a_ = test_tokens(8, 1000), b_ = test_tokens(14, 1000), c_ = test_tokens(8, 2000);
};

TEST_F(DiskCrashTest, EveryStepOfAWriteMayBeTheLast) {
  uint64_t steps = 0;
  bool finished = false;
  for (uint64_t last = 1; !finished; ++last) {
    for (double part : {0.0, 0.5, 1.0}) {
      SCOPED_TRACE(testing::Message() << "step " << last << ", part " << part);
      std::filesystem::remove_all(folder_);
      open_tier();
      written(a_);
      const auto files = std::make_shared<EndingFiles>(UINT64_MAX, part);
      DiskTierOptions ending = disk_options();
      ending.files = files;
      open_tier(ending);
      files->step = 0;
      files->last_step = last;
      finished = tier_->write(content(b_), {}).has_value();  // shares pages with a
      ASSERT_NO_FATAL_FAILURE(check_folder({a_}, {b_}));
      if (!files->ended_in_write) break;
    }
    steps = last;
  }
  EXPECT_GT(steps, 20u) << "or not every step was counted";
}

TEST_F(DiskCrashTest, EveryStepOfARemovalMayBeTheLast) {
  bool finished = false;
  for (uint64_t last = 1; !finished; ++last) {
    SCOPED_TRACE(testing::Message() << "step " << last);
    std::filesystem::remove_all(folder_);
    open_tier();
    written(a_);
    written(b_);
    written(c_);
    const auto files = std::make_shared<EndingFiles>(UINT64_MAX, 0);
    DiskTierOptions ending = disk_options();
    ending.files = files;
    open_tier(ending);
    files->step = 0;
    files->last_step = last;
    static_cast<void>(tier_->drop(content(b_).manifest.id));
    finished = files->step < last;
    ASSERT_NO_FATAL_FAILURE(check_folder({a_, c_}, {b_}));
  }
}

TEST_F(DiskCrashTest, EveryStepOfAWriteThatPushesOthersOutMayBeTheLast) {
  bool finished = false;
  for (uint64_t last = 1; !finished; ++last) {
    SCOPED_TRACE(testing::Message() << "step " << last);
    std::filesystem::remove_all(folder_);
    open_tier(budget_of(2));
    written(c_);
    now_ms_ += 3'600'000;
    written(a_);
    const auto files = std::make_shared<EndingFiles>(UINT64_MAX, 0.5);
    DiskTierOptions ending = budget_of(2);
    ending.files = files;
    open_tier(ending);
    files->step = 0;
    files->last_step = last;
    const TestTokens d = test_tokens(8, 4000);
    finished = tier_->write(content(d), {}).has_value();
    ASSERT_NO_FATAL_FAILURE(check_folder({a_}, {c_, d}));
  }
}

TEST_F(DiskCrashTest, EveryStepOfTheFirstStartMayBeTheLast) {
  bool finished = false;
  for (uint64_t last = 1; !finished; ++last) {
    SCOPED_TRACE(testing::Message() << "step " << last);
    std::filesystem::remove_all(folder_);
    DiskTierOptions ending = disk_options();
    ending.files = std::make_shared<EndingFiles>(last, 0.5);
    finished = DiskTier::open(ending).has_value();
    ASSERT_NO_FATAL_FAILURE(check_folder({}, {}));
  }
}

// A child writes and drops without end; it reports each commit after it and each drop before it. The parent
// kills it at some moment, also within SQLite's work: whatever was committed and not to be dropped since must
// be there.
TEST_F(DiskCrashTest, AKillAtAnyMomentLosesNothingThatWasCommitted) {
  constexpr uint32_t kRounds = 25;
  constexpr uint32_t kConversations = 30;
  constexpr unsigned char kDrops = 0x80;
  std::mt19937 random(4711);
  const auto conversation = [](uint32_t number) {
    return test_tokens(5 + number % 9, 1000 * static_cast<int32_t>(number % 10 + 1));  // three share pages
  };
  std::array<bool, kConversations> must{};
  std::size_t checked = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const uint32_t child_seed = random();
    int reports[2];
    ASSERT_EQ(::pipe(reports), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::mt19937 choices(child_seed);
      open_tier();
      const auto report = [&](unsigned char what) {
        if (::write(reports[1], &what, 1) != 1) ::_exit(1);
      };
      for (;; now_ms_ += 1000) {
        const auto number = static_cast<unsigned char>(choices() % kConversations);
        if (choices() % 3 == 0) {
          report(number | kDrops);
          static_cast<void>(tier_->drop(content(conversation(number)).manifest.id));
        } else if (tier_->write(content(conversation(number)), {})) {
          report(number);
        }
      }
    }
    ::close(reports[1]);
    const auto hear = [&] {
      unsigned char what = 0;
      if (::read(reports[0], &what, 1) != 1) return false;
      must.at(what & (kDrops - 1)) = (what & kDrops) == 0;
      return true;
    };
    ASSERT_TRUE(hear()) << "it has begun";
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    while (hear()) continue;
    ::close(reports[0]);

    open_tier();
    EXPECT_EQ(tier_->counters().damaged, 0u);
    EXPECT_EQ(tier_->counters().index_rebuilt, 0u) << "SQLite's own recovery is enough";
    EXPECT_EQ(tier_->used_bytes(), blocks());
    EXPECT_EQ(names(".tmp").size(), 0u);
    std::size_t offered = 0;
    for (uint32_t i = 0; i < kConversations; ++i) {
      const SnapshotId id = content(conversation(i)).manifest.id;
      ASSERT_TRUE(!must[i] || tier_->contains(id)) << "conversation " << i << " was committed";
      if (!tier_->contains(id)) continue;
      ASSERT_EQ(disk_fault(id, conversation(i)), "");
      ++offered;
      if (must[i]) ++checked;
    }
    EXPECT_EQ(tier_->list().size(), offered);
    tier_.reset();
  }
  EXPECT_GT(checked, 50u) << "or the kills came too early to test anything";
}

}  // namespace
}  // namespace strata::snapshot
