// Starts the fixture program with a shell, as the supervisor would start a worker.
#include "services/rpc/process_main.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "services/shm/segment.h"

namespace strata::rpc {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Ran {
  int exit_code = -1;
  std::string output;
};

class ProcessMain : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "strata-main-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(folder_ + "/c.yaml") << "experts:\n  slots: 25%\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  Ran run(const std::string& arguments, const std::string& before = "") {
    std::string command = fmt::format("{} timeout 20 {} {} 2>&1", before, STRATA_FIXTURE, arguments);
    FILE* pipe = ::popen(command.c_str(), "r");
    Ran ran;
    char piece[4096];
    while (std::size_t n = std::fread(piece, 1, sizeof piece, pipe)) ran.output.append(piece, n);
    int status = ::pclose(pipe);
    ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ran;
  }

  std::string usual() const { return fmt::format("--config {0}/c.yaml --run-dir {0} ", folder_); }

  std::string folder_;
};

TEST_F(ProcessMain, RunsUntilItIsAskedToStop) {
  // timeout sends SIGTERM and reports 124 itself, so the exit code seen here is not the fixture's.
  std::string command =
      fmt::format("timeout --preserve-status 1 {} {} --name worker-7 2>&1", STRATA_FIXTURE, usual());
  FILE* pipe = ::popen(command.c_str(), "r");
  char piece[4096] = {};
  std::string output;
  while (std::size_t n = std::fread(piece, 1, sizeof piece, pipe)) output.append(piece, n);
  EXPECT_EQ(WEXITSTATUS(::pclose(pipe)), 0);
  EXPECT_THAT(output, HasSubstr("worker-7 " + shm::run_id(folder_)));
  EXPECT_THAT(output, HasSubstr("info  worker-7 fixture: stopped"));
}

TEST_F(ProcessMain, EndsWithTwoAndOneLineForAStartUpFault) {
  for (const auto& [arguments, expected] : std::vector<std::pair<std::string, std::string>>{
           {"", "--config"},
           {usual() + "--nonsense", "--nonsense"},
           {fmt::format("--config {0}/nosuch.yaml --run-dir {0}", folder_),
            "nosuch.yaml: no such configuration file"},
           {fmt::format("--config {0}/c.yaml --run-dir {0}/nosuch", folder_), "nosuch: no such folder"},
           {usual() + "--set experts.slots=many", "experts.slots"}}) {
    Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, kExitStartupFault) << arguments;
    EXPECT_THAT(ran.output, HasSubstr("process_main_fixture: "));
    EXPECT_THAT(ran.output, HasSubstr(expected));
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
  }
}

TEST_F(ProcessMain, RefusesARunDirectoryThatOthersMayEnter) {
  fs::permissions(folder_, fs::perms(0755));
  Ran ran = run(usual());
  EXPECT_EQ(ran.exit_code, kExitStartupFault);
  EXPECT_THAT(ran.output, HasSubstr("0700"));
}

TEST_F(ProcessMain, DoesNotAskTheEnvironmentAgain) {
  Ran ran = run(usual() + "--help", "STRATA__EXPERTS__SLOTS=nonsense");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.output, HasSubstr("--run-dir"));
  ran = run(usual() + "--set experts.policy=no", "STRATA__EXPERTS__SLOTS=nonsense");
  EXPECT_THAT(ran.output, ::testing::Not(HasSubstr("STRATA__")));
}

TEST_F(ProcessMain, ShowsHelpAndVersion) {
  EXPECT_EQ(run("--help").exit_code, 0);
  Ran version = run("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.output, HasSubstr("process_main_fixture 0."));
}

}  // namespace
}  // namespace strata::rpc
