// Each case in a child process: the point ends it.

#include "services/sys/crash_point.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace strata::sys {
namespace {

class CrashPointTest : public testing::Test {
 protected:
  CrashPointTest() { std::filesystem::create_directories(folder_); }
  ~CrashPointTest() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  void arm(const std::string& name) const { std::ofstream(file(name)) << "x"; }

  // How a child ends that passes the place: by a signal (its number), or by itself (0).
  static int pass(const std::string& listed, const char* place) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("STRATA_TEST_CRASH_AT", listed.c_str(), 1);
      crash_point(place);
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("crash-" + std::to_string(::getpid()));
};

TEST_F(CrashPointTest, EndsTheProcessOncePerFile) {
  const std::string listed = "copying@" + file("a");
  EXPECT_EQ(pass(listed, "copying"), 0) << "there is no file";
  arm("a");
  EXPECT_EQ(pass(listed, "copied"), 0) << "another place";
  EXPECT_EQ(pass(listed, "copying"), SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(file("a")));
  EXPECT_EQ(pass(listed, "copying"), 0) << "once";
}

TEST_F(CrashPointTest, TakesAListAndIgnoresWhatItCannotRead) {
  arm("b");
  const std::string listed = "copying@" + file("a") + ",nonsense,,landed@" + file("b");
  EXPECT_EQ(pass(listed, "nonsense"), 0);
  EXPECT_EQ(pass(listed, ""), 0);
  EXPECT_EQ(pass(listed, "copying"), 0);
  EXPECT_EQ(pass(listed, "landed"), SIGKILL);
  EXPECT_EQ(pass("", "landed"), 0);
}

}  // namespace
}  // namespace strata::sys
