#include "services/cli/run_dir.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "services/shm/segment.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "strata-run-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/run";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder_, path_;
};

TEST_F(RunDirTest, IsMadeForTheUserAlone) {
  auto taken = RunDir::take(path_ + "/");
  ASSERT_TRUE(taken.has_value()) << taken.error().message();
  EXPECT_EQ(taken->path(), path_);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0700));
  ASSERT_TRUE(taken->write_config("a: 1\n").ok());
  EXPECT_EQ(fs::status(taken->config_path()).permissions(), fs::perms(0600));
}

TEST_F(RunDirTest, HasOneOwnerAtATimeAndNamesIt) {
  {
    auto first = RunDir::take(path_);
    ASSERT_TRUE(first.has_value());
    auto second = RunDir::take(path_);
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
    EXPECT_THAT(second.error().message(), HasSubstr(fmt::format("pid {}", ::getpid())));
  }
  EXPECT_TRUE(RunDir::take(path_).has_value()) << "the lock went with its owner";
}

TEST_F(RunDirTest, LosesWhatAKilledClusterLeft) {
  fs::create_directory(path_);
  fs::permissions(path_, fs::perms(0700));
  std::string socket_path = path_ + "/gateway.sock";
  sys::FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  std::ofstream(path_ + "/config.yaml") << "old";
  std::ofstream(path_ + "/strata.log") << "keep";
  std::string segment = shm::segment_name(shm::run_id(path_), "arena", 7);
  sys::FileDescriptor memory(::shm_open(segment.c_str(), O_CREAT | O_RDWR, 0600));
  ASSERT_TRUE(memory.valid());

  auto taken = RunDir::take(path_);
  ASSERT_TRUE(taken.has_value());
  EXPECT_FALSE(fs::exists(socket_path));
  EXPECT_FALSE(fs::exists(taken->config_path()));
  EXPECT_TRUE(fs::exists(path_ + "/strata.log"));
  EXPECT_FALSE(fs::exists("/dev/shm" + segment));
}

TEST_F(RunDirTest, RefusesAFolderThatOthersMayEnter) {
  fs::create_directory(path_);
  fs::permissions(path_, fs::perms(0755));
  auto taken = RunDir::take(path_);
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(taken.error().message(), HasSubstr("chmod 700"));
}

TEST_F(RunDirTest, RefusesLinksAndFiles) {
  fs::create_directory(folder_ + "/elsewhere");
  fs::permissions(folder_ + "/elsewhere", fs::perms(0700));
  fs::create_directory_symlink(folder_ + "/elsewhere", path_);
  EXPECT_FALSE(RunDir::take(path_).has_value());
  fs::remove(path_);
  std::ofstream(path_) << "a file";
  EXPECT_FALSE(RunDir::take(path_).has_value());
}

TEST_F(RunDirTest, RefusesAFolderOfSomebodyElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directory(path_);
  fs::permissions(path_, fs::perms(0700));
  ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
  auto taken = RunDir::take(path_);
  ASSERT_FALSE(taken.has_value());
  EXPECT_THAT(taken.error().message(), HasSubstr("12345"));
}

TEST_F(RunDirTest, RefusesAPathTooLongForSockets) {
  auto taken = RunDir::take(folder_ + "/" + std::string(90, 'x'));
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code(), Code::kInvalidArgument);
}

TEST_F(RunDirTest, HasADefault) {
  ::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(default_run_dir(), "/run/user/7/strata");
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(default_run_dir(), fmt::format("/tmp/strata-{}", ::geteuid()));
}

}  // namespace
}  // namespace strata::cli
