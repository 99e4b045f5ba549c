#include "services/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace strata::shm {
namespace {

constexpr uint32_t kLayout = 7;

class SegmentTest : public testing::Test {
 protected:
  void TearDown() override { remove_stale_segments(run_); }
  std::string name(std::string_view what = "test") { return segment_name(run_, what, random_instance_id()); }
  static Result<Segment> attach(const Segment& other, SegmentKind kind = SegmentKind::kBoard,
                                uint32_t layout = kLayout) {
    return Segment::attach(other.name(), kind, layout, other.bytes(), other.instance_id());
  }
  static bool exists(const std::string& name) { return access(("/dev/shm" + name).c_str(), F_OK) == 0; }

  // A run of its own, so that tests in parallel do not see each other.
  std::string run_ = fmt::format("{:08x}", static_cast<uint32_t>(random_instance_id()));
};

TEST_F(SegmentTest, IsZeroFilledAndPrivateToTheUser) {
  auto segment = Segment::create(name(), SegmentKind::kBoard, kLayout, 10'000);
  ASSERT_TRUE(segment) << segment.error().message();
  for (uint64_t i = sizeof(SegmentHeader); i < segment->bytes(); ++i)
    ASSERT_EQ(segment->data()[i], std::byte{0}) << i;
  struct stat info{};
  ASSERT_EQ(stat(("/dev/shm" + segment->name()).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_EQ(info.st_size, 10'000);
  EXPECT_EQ(segment->header()->owner_pid, static_cast<uint32_t>(getpid()));
}

TEST_F(SegmentTest, SharesItsBytesWithWhoeverAttaches) {
  auto owner = Segment::create(name(), SegmentKind::kBoard, kLayout, 4096);
  ASSERT_TRUE(owner);
  auto other = attach(*owner);
  ASSERT_TRUE(other) << other.error().message();
  owner->data()[100] = std::byte{42};
  EXPECT_EQ(other->data()[100], std::byte{42});
  EXPECT_NE(other->data(), owner->data());
}

TEST_F(SegmentTest, RefusesWhoeverExpectsSomethingElse) {
  auto owner = Segment::create(name(), SegmentKind::kBoard, kLayout, 4096);
  ASSERT_TRUE(owner);
  const auto refused = [&](SegmentKind kind, uint32_t layout, uint64_t bytes, uint64_t instance) {
    auto other = Segment::attach(owner->name(), kind, layout, bytes, instance);
    return !other && other.error().code() == Code::kFailedPrecondition;
  };
  EXPECT_TRUE(refused(SegmentKind::kArena, kLayout, 4096, owner->instance_id()));
  EXPECT_TRUE(refused(SegmentKind::kBoard, kLayout + 1, 4096, owner->instance_id()));
  EXPECT_TRUE(refused(SegmentKind::kBoard, kLayout, 8192, owner->instance_id()));
  EXPECT_TRUE(refused(SegmentKind::kBoard, kLayout, 10, owner->instance_id()));
  EXPECT_TRUE(refused(SegmentKind::kBoard, kLayout, 4096, owner->instance_id() + 1));
  EXPECT_TRUE(attach(*owner)) << "the right one still gets in";
}

// Every field of the header is checked: whichever is damaged, nobody attaches.
TEST_F(SegmentTest, RefusesADamagedHeader) {
  auto owner = Segment::create(name(), SegmentKind::kBoard, kLayout, 4096);
  ASSERT_TRUE(owner);
  auto* header = reinterpret_cast<SegmentHeader*>(owner->data());
  const SegmentHeader good = *header;
  const auto damaged = [&](auto SegmentHeader::* field) {
    header->*field ^= 1;
    auto other = Segment::attach(owner->name(), SegmentKind::kBoard, kLayout, 4096, good.instance_id);
    *header = good;
    return !other && other.error().code() == Code::kFailedPrecondition;
  };
  EXPECT_TRUE(damaged(&SegmentHeader::magic));
  EXPECT_TRUE(damaged(&SegmentHeader::kind));
  EXPECT_TRUE(damaged(&SegmentHeader::layout_version));
  EXPECT_TRUE(damaged(&SegmentHeader::instance_id));
  EXPECT_TRUE(damaged(&SegmentHeader::bytes));
}

// A file that is shorter than its header says would be a SIGBUS at the first touch.
TEST_F(SegmentTest, RefusesATruncatedSegment) {
  auto owner = Segment::create(name(), SegmentKind::kBoard, kLayout, 8192);
  ASSERT_TRUE(owner);
  ASSERT_EQ(truncate(("/dev/shm" + owner->name()).c_str(), 4096), 0);
  auto other = attach(*owner);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::kFailedPrecondition);
}

TEST_F(SegmentTest, DoesNotReuseANameThatExists) {
  auto first = Segment::create(name(), SegmentKind::kBoard, kLayout, 4096);
  ASSERT_TRUE(first);
  auto second = Segment::create(first->name(), SegmentKind::kBoard, kLayout, 4096);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_TRUE(exists(first->name())) << "the failed attempt must not remove the other's name";
}

TEST_F(SegmentTest, SaysHowMuchRoomIsMissing) {
  struct statvfs room{};
  ASSERT_EQ(statvfs("/dev/shm", &room), 0);
  if (room.f_blocks == 0) GTEST_SKIP() << "/dev/shm has no limit here";
  const uint64_t too_much = uint64_t{room.f_blocks} * room.f_frsize + (uint64_t{1} << 40);
  const std::string wanted = name();
  auto segment = Segment::create(wanted, SegmentKind::kArena, kLayout, too_much);
  ASSERT_FALSE(segment);
  EXPECT_EQ(segment.error().code(), Code::kResourceExhausted);
  EXPECT_NE(segment.error().message().find(fmt::format("needs {} bytes", too_much)), std::string::npos)
      << segment.error().message();
  EXPECT_FALSE(exists(wanted)) << "nothing is left behind";
}

TEST_F(SegmentTest, RemovesItsNameWithItsOwnerOnly) {
  std::string segment;
  {
    auto owner = Segment::create(name(), SegmentKind::kBoard, kLayout, 4096);
    ASSERT_TRUE(owner);
    segment = owner->name();
    {
      ASSERT_TRUE(attach(*owner));
    }
    EXPECT_TRUE(exists(segment)) << "an attached one goes without a trace";
    Segment moved = std::move(*owner);
    EXPECT_TRUE(exists(segment));
  }
  EXPECT_FALSE(exists(segment));
}

TEST_F(SegmentTest, StaysMappedAfterItsNameIsGone) {
  auto owner = Segment::create(name(), SegmentKind::kBoard, kLayout, 4096);
  ASSERT_TRUE(owner);
  auto early = attach(*owner);
  ASSERT_TRUE(early);
  owner->unlink();
  auto late = attach(*owner);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::kNotFound);
  owner->data()[100] = std::byte{1};
  EXPECT_EQ(early->data()[100], std::byte{1});
}

// What a killed owner leaves behind goes at the next start; other runs keep theirs.
TEST_F(SegmentTest, RemovesTheStaleSegmentsOfItsRunOnly) {
  for (const char* what : {"board", "arena"}) {
    const int fd = shm_open(name(what).c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    ASSERT_GE(fd, 0);
    close(fd);
  }
  const std::string other_run = fmt::format("{:08x}", static_cast<uint32_t>(random_instance_id()));
  auto other = Segment::create(segment_name(other_run, "board", 1), SegmentKind::kBoard, kLayout, 4096);
  ASSERT_TRUE(other);
  EXPECT_EQ(remove_stale_segments(run_), 2U);
  EXPECT_EQ(remove_stale_segments(run_), 0U);
  EXPECT_TRUE(exists(other->name()));
}

TEST_F(SegmentTest, RemovesWhatADeadOwnerLeftAndNothingElse) {
  auto mine = Segment::create(name("board"), SegmentKind::kBoard, kLayout, 4096);
  ASSERT_TRUE(mine);
  const std::string left = name("arena");
  const pid_t owner = fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    auto segment = Segment::create(left, SegmentKind::kArena, kLayout, 4096);
    _exit(segment.has_value() ? 0 : 1);  // without its destructor, as after SIGKILL
  }
  int status = 0;
  ASSERT_EQ(waitpid(owner, &status, 0), owner);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(exists(left));
  EXPECT_EQ(remove_segments_of_dead_owners(run_), 1U);
  EXPECT_FALSE(exists(left));
  EXPECT_TRUE(exists(mine->name()));
}

TEST(RunIdTest, IsTheSameForTheSameFolder) {
  EXPECT_EQ(run_id("/tmp"), run_id("/tmp/../tmp/."));
  EXPECT_NE(run_id("/tmp"), run_id("/usr"));
  EXPECT_EQ(run_id("/tmp").size(), 8U);
  EXPECT_EQ(segment_name("a1b2c3d4", "board", 0xff), "/strata-a1b2c3d4-board-00000000000000ff");
}

}  // namespace
}  // namespace strata::shm
