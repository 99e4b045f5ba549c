#include "services/sys/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace strata::sys {
namespace {

using namespace std::chrono_literals;

class ProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-sys-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string output_path() const { return (folder_ / "output").string(); }
  std::string output() const {
    std::ifstream in(output_path());
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  Result<ProcessHandle> run_shell(const std::string& script,
                                  std::vector<std::string> environment = {}) const {
    return spawn({.arguments = {"/bin/sh", "-c", script},
                  .environment = std::move(environment),
                  .output_path = output_path()});
  }
  // Every wait of this file ends: a child that is not gone after this time fails the test.
  static std::optional<ExitStatus> wait_and_reap(const ProcessHandle& child) {
    for (int i = 0; i < 3000 && !child.gone(); ++i) std::this_thread::sleep_for(10ms);
    return reap(child);
  }

  std::filesystem::path folder_;
};

TEST_F(ProcessTest, ReportsTheExitCodeOfAChild) {
  auto child = run_shell("exit 7");
  ASSERT_TRUE(child) << child.error().message();
  auto end = wait_and_reap(*child);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->text(), "exit 7");
}

TEST_F(ProcessTest, ReportsTheSignalThatEndedAChild) {
  auto child = run_shell("sleep 600");
  ASSERT_TRUE(child);
  EXPECT_FALSE(child->gone());
  EXPECT_FALSE(reap(*child)) << "still running";
  EXPECT_TRUE(child->kill_and_wait(20000));
  EXPECT_TRUE(child->gone());
  auto end = reap(*child);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->text(), "signal 9 (Killed)");
  EXPECT_TRUE(child->kill_and_wait(0)) << "killing what is gone is no fault";
}

TEST_F(ProcessTest, KillsAStoppedProcess) {
  auto child = run_shell("sleep 600");
  ASSERT_TRUE(child);
  child->send_signal(SIGSTOP);
  EXPECT_TRUE(child->kill_and_wait(20000));
  EXPECT_TRUE(reap(*child));
}

TEST_F(ProcessTest, GivesTheChildItsEnvironmentOverTheParents) {
  setenv("STRATA_TEST_INHERITED", "from parent", 1);
  setenv("STRATA_TEST_REPLACED", "old", 1);
  auto child = run_shell("echo \"$STRATA_TEST_INHERITED/$STRATA_TEST_REPLACED/$STRATA_TEST_NEW\"",
                         {"STRATA_TEST_REPLACED=new", "STRATA_TEST_NEW=added"});
  ASSERT_TRUE(child);
  ASSERT_TRUE(wait_and_reap(*child));
  EXPECT_EQ(output(), "from parent/new/added\n");
}

TEST_F(ProcessTest, AppendsTheOutputToAFile) {
  for (const char* script : {"echo one", "echo two >&2"}) {
    auto child = run_shell(script);
    ASSERT_TRUE(child);
    ASSERT_TRUE(wait_and_reap(*child));
  }
  EXPECT_EQ(output(), "one\ntwo\n");
}

// No shell in between: one blocks signals for a moment around its own forks.
TEST_F(ProcessTest, GivesTheChildAProcessGroupOfItsOwn) {
  // Fields 1 and 5 of stat are the process and its group.
  auto child = spawn({.arguments = {"/usr/bin/cut", "-d ", "-f1,5", "/proc/self/stat"},
                      .environment = {},
                      .output_path = output_path()});
  ASSERT_TRUE(child) << child.error().message();
  ASSERT_TRUE(wait_and_reap(*child));
  EXPECT_EQ(output(), fmt::format("{0} {0}\n", child->pid()));
}

TEST_F(ProcessTest, StartsTheChildWithNoSignalBlockedOrIgnored) {
  signal(SIGPIPE, SIG_IGN);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  auto child = spawn({.arguments = {"/bin/grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"},
                      .environment = {},
                      .output_path = output_path()});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  signal(SIGPIPE, SIG_DFL);
  ASSERT_TRUE(child) << child.error().message();
  ASSERT_TRUE(wait_and_reap(*child));
  EXPECT_EQ(output(), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_F(ProcessTest, LeaksNoDescriptorIntoTheChild) {
  const int leaky = open("/dev/null", O_RDONLY);  // no O_CLOEXEC, as a careless library would
  ASSERT_GE(leaky, 3);
  auto child = run_shell("test -e /proc/self/fd/" + std::to_string(leaky) + " && echo leaked || echo closed");
  close(leaky);
  ASSERT_TRUE(child);
  ASSERT_TRUE(wait_and_reap(*child));
  EXPECT_EQ(output(), "closed\n");
}

TEST_F(ProcessTest, NamesTheProgramThatCannotBeStarted) {
  auto missing = spawn({.arguments = {"/nonexistent/program"}, .environment = {}, .output_path = {}});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_EQ(missing.error().message(), "/nonexistent/program: No such file or directory");
  auto folder = spawn({.arguments = {"/tmp"}, .environment = {}, .output_path = {}});
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code(), Code::kPermissionDenied);
}

TEST_F(ProcessTest, NamesTheOutputFileThatCannotBeWritten) {
  auto child = spawn({.arguments = {"/bin/true"}, .environment = {}, .output_path = "/nonexistent/output"});
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().message(), "/nonexistent/output: No such file or directory");
}

TEST_F(ProcessTest, FindsNoProcessUnderAnUnusedPid) {
  auto child = run_shell("exit 0");
  ASSERT_TRUE(child);
  ASSERT_TRUE(wait_and_reap(*child));
  auto again = ProcessHandle::open(child->pid());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kNotFound);
  EXPECT_FALSE(ProcessHandle::open(0));
  EXPECT_FALSE(ProcessHandle::open(UINT32_MAX));
}

// A process in the middle spawns a grandchild and is killed: the grandchild must go, too.
TEST_F(ProcessTest, EndsTheChildWhenTheParentIsKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t middle = fork();
  if (middle == 0) {
    auto grandchild = spawn({.arguments = {"/bin/sleep", "600"}, .environment = {}, .output_path = {}});
    const uint32_t pid = grandchild ? grandchild->pid() : 0;
    static_cast<void>(!write(ends[1], &pid, sizeof(pid)));
    pause();
    _exit(0);
  }
  ASSERT_GT(middle, 0);
  uint32_t grandchild_pid = 0;
  ASSERT_EQ(read(ends[0], &grandchild_pid, sizeof(grandchild_pid)),
            static_cast<ssize_t>(sizeof(grandchild_pid)));
  close(ends[0]);
  close(ends[1]);
  auto grandchild = ProcessHandle::open(grandchild_pid);
  ASSERT_TRUE(grandchild);
  EXPECT_FALSE(grandchild->gone());
  kill(middle, SIGKILL);
  waitpid(middle, nullptr, 0);
  for (int i = 0; i < 2000 && !grandchild->gone(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(grandchild->gone());
}

TEST_F(ProcessTest, ReadsTheResidentMemoryOfAProcess) {
  EXPECT_GT(rss_bytes(static_cast<uint32_t>(getpid())), 100'000U);
  EXPECT_EQ(rss_bytes(UINT32_MAX), 0U);
}

}  // namespace
}  // namespace strata::sys
