// The real `strata` program with stand-ins for the workers: both are copied into a folder of the test's own,
// for the supervisor starts what lies beside it.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "services/shm/segment.h"
#include "services/sys/process.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto kDeadline = 30s;

struct Ran {
  int exit_code = -1;
  std::string out, err;
};

std::string read(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool runs(int64_t pid) {
  std::string stat = read(fmt::format("/proc/{}/stat", pid));
  auto end = stat.rfind(')');
  return end != std::string::npos && stat.size() > end + 2 && stat[end + 2] != 'Z';
}

class Up : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "strata-up-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    fs::copy_file(STRATA_PROGRAM, folder_ / "strata");
    for (const char* name :
         {"strata-gpu-worker", "strata-cache-manager", "strata-cpu-expert-worker", "strata-gateway"}) {
      fs::copy_file(STRATA_WORKER_FIXTURE, folder_ / name);
    }
    run_dir_ = (folder_ / "run").string();
    write_config("");
  }

  void TearDown() override {
    if (supervisor_) {
      supervisor_->send_signal(SIGKILL);
      wait([&] { return supervisor_->gone(); });
      sys::reap(*supervisor_);
    }
    fs::remove_all(folder_);
  }

  void write_config(const std::string& more) {
    std::ofstream(folder_ / "c.yaml") << "model:\n  path: " STRATA_SOURCE_DIR "/models/strata-demo.gguf\n"
                                      << "gateway:\n  listen: 127.0.0.1:1234\nsupervisor:\n  backoff_ms: 20\n"
                                      << more;
  }

  void behave(const std::string& name, const std::string& how) {
    std::ofstream(folder_ / (name + ".behaviour")) << how << "\n";
  }

  static bool wait(const std::function<bool()>& condition) {
    for (auto end = std::chrono::steady_clock::now() + kDeadline; std::chrono::steady_clock::now() < end;) {
      if (condition()) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  Ran run(const std::string& arguments) const {
    std::string command =
        fmt::format("timeout 60 {0}/strata {1} >{0}/out 2>{0}/err", folder_.string(), arguments);
    int status = std::system(command.c_str());
    return {WEXITSTATUS(status), read(folder_ / "out"), read(folder_ / "err")};
  }

  std::string up_arguments() const {
    return fmt::format("up --config {}/c.yaml --run-dir {}", folder_.string(), run_dir_);
  }

  // Starts `strata up` in the background with its output in up.log.
  void start() {
    auto handle = sys::spawn({.arguments = {(folder_ / "strata").string(), "up", "--config",
                                            (folder_ / "c.yaml").string(), "--run-dir", run_dir_},
                              .environment = {},
                              .output_path = (folder_ / "up.log").string()});
    ASSERT_TRUE(handle.has_value()) << handle.error().message();
    supervisor_ = std::move(*handle);
  }

  void start_until_ready() {
    start();
    ASSERT_TRUE(wait([&] { return log().find("ready http") != std::string::npos; })) << log();
  }

  std::string log() const { return read(folder_ / "up.log"); }

  json::object status() const {
    Ran ran = run("status --json --run-dir " + run_dir_);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    boost::system::error_code error;
    json::value parsed = json::parse(ran.out, error);
    EXPECT_FALSE(error) << ran.out;
    return parsed.is_object() ? parsed.get_object() : json::object();
  }

  json::object process(const std::string& name) const {
    json::object all = status();
    for (const auto& entry : all["processes"].as_array()) {
      if (entry.at("name").as_string() == name) return entry.as_object();
    }
    ADD_FAILURE() << "no process " << name;
    return {};
  }

  std::vector<int64_t> pids() const {
    std::vector<int64_t> found;
    json::object all = status();
    for (const auto& entry : all["processes"].as_array())
      found.push_back(entry.at("pid").to_number<int64_t>());
    return found;
  }

  std::optional<sys::ExitStatus> ended() {
    EXPECT_TRUE(wait([&] { return supervisor_->gone(); })) << log();
    auto exit = sys::reap(*supervisor_);
    supervisor_.reset();
    return exit;
  }

  void expect_nothing_left() const {
    for (const auto& entry : fs::directory_iterator(run_dir_)) {
      EXPECT_EQ(entry.path().extension() == ".sock" || entry.path().extension() == ".yaml", false)
          << entry.path();
    }
    for (const auto& entry : fs::directory_iterator("/dev/shm")) {
      EXPECT_EQ(entry.path().filename().string().find("strata-" + shm::run_id(run_dir_)), std::string::npos)
          << entry.path();
    }
  }

  fs::path folder_;
  std::string run_dir_;
  std::optional<sys::ProcessHandle> supervisor_;
};

TEST_F(Up, StartsEverythingAndStopsEverything) {
  start_until_ready();
  EXPECT_THAT(log(), HasSubstr("ready http://127.0.0.1:1234\n"));
  json::object all = status();
  EXPECT_TRUE(all["ready"].as_bool());
  EXPECT_EQ(all["address"].as_string(), "http://127.0.0.1:1234");
  EXPECT_EQ(all["processes"].as_array().size(), 4u);
  for (const auto& entry : all["processes"].as_array()) {
    EXPECT_EQ(entry.at("state").as_string(), "ready");
    EXPECT_GT(entry.at("rss_bytes").to_number<int64_t>(), 0);
  }
  auto children = pids();
  supervisor_->send_signal(SIGTERM);
  auto exit = ended();
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->text(), "exit 0");
  for (int64_t pid : children) EXPECT_FALSE(runs(pid)) << pid;
  expect_nothing_left();
}

TEST_F(Up, RestartsAKilledProcess) {
  start_until_ready();
  int64_t old_pid = process("cpu-expert-worker-0")["pid"].to_number<int64_t>();
  ASSERT_EQ(::kill(static_cast<pid_t>(old_pid), SIGKILL), 0);
  ASSERT_TRUE(wait([&] {
    json::object entry = process("cpu-expert-worker-0");
    return entry["state"].as_string() == "ready" && entry["pid"].to_number<int64_t>() != old_pid;
  })) << log();
  EXPECT_EQ(process("cpu-expert-worker-0")["restarts"].to_number<int64_t>(), 1);
  EXPECT_EQ(process("cpu-expert-worker-0")["last_exit"].as_string(), "signal 9 (Killed)");
}

TEST_F(Up, StopsWithinSecondsThoughAChildIgnoresSigterm) {
  behave("gpu-worker", "stubborn");
  behave("gateway", "stubborn");
  start_until_ready();
  auto children = pids();
  auto begin = std::chrono::steady_clock::now();
  supervisor_->send_signal(SIGTERM);
  ASSERT_TRUE(ended().has_value());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s)
      << "five are promised, on a machine with time to spare";
  for (int64_t pid : children) EXPECT_FALSE(runs(pid)) << pid;
}

TEST_F(Up, EndsWithTwoWhenAWorkerCannotStart) {
  behave("cache-manager", "exit 2");
  start();
  auto exit = ended();
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->text(), "exit 2");
  EXPECT_THAT(log(), HasSubstr("strata-cache-manager: fixture: cannot work like this\n"));
  EXPECT_EQ(log().find("ready http"), std::string::npos);
  expect_nothing_left();
}

TEST_F(Up, TakesItsChildrenAlongWhenItIsKilledAndStartsAgain) {
  start_until_ready();
  auto children = pids();
  supervisor_->send_signal(SIGKILL);
  ASSERT_TRUE(ended().has_value());
  EXPECT_TRUE(wait([&] { return std::none_of(children.begin(), children.end(), runs); }));
  EXPECT_TRUE(fs::exists(run_dir_ + "/gateway.sock")) << "left over, as it should be for this test";
  fs::remove(folder_ / "up.log");
  start_until_ready();
  EXPECT_EQ(pids().size(), 4u);
}

TEST_F(Up, RunsOncePerRunDirectory) {
  start_until_ready();
  Ran second = run(up_arguments());
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(second.err, HasSubstr(fmt::format("pid {}", supervisor_->pid())));
  EXPECT_TRUE(status()["ready"].as_bool());
}

TEST_F(Up, SaysAtOnceWhatIsWrongAndStartsNothing) {
  for (const auto& [arguments, expected] : std::vector<std::pair<std::string, std::string>>{
           {" --set model.path=nosuch.gguf", "nosuch.gguf"},
           {" --set model.path=", "model.path"},
           {fmt::format(" --set model.path={}/c.yaml", folder_.string()), "c.yaml"},
           {" --set experts.slot=5", "experts.slots"},
           {" --set engine.sequences=1000", "engine.sequences"},
           {" --listen nonsense", "gateway.listen"}}) {
    for (const char* detach : {"", " --detach"}) {
      Ran ran = run(up_arguments() + arguments + detach);
      EXPECT_EQ(ran.exit_code, 2) << arguments;
      EXPECT_THAT(ran.err, HasSubstr(expected));
      EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
      EXPECT_EQ(ran.out, "");
      EXPECT_FALSE(fs::exists(run_dir_)) << "not even a folder";
    }
  }
}

TEST_F(Up, DetachesAndGoesDown) {
  Ran up = run(up_arguments() + " --detach --listen 127.0.0.1:4321");
  ASSERT_EQ(up.exit_code, 0) << up.err;
  EXPECT_EQ(up.out, "ready http://127.0.0.1:4321\n");
  auto children = pids();
  EXPECT_THAT(read(run_dir_ + "/strata.log"), HasSubstr("gateway is ready"));
  Ran down = run("down --run-dir " + run_dir_);
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_TRUE(std::none_of(children.begin(), children.end(), runs));
  expect_nothing_left();
  EXPECT_EQ(run("status --run-dir " + run_dir_).exit_code, 3);
  EXPECT_EQ(run("down --run-dir " + run_dir_).exit_code, 3);
}

TEST_F(Up, HandsOnTheFaultOfADetachedStart) {
  behave("gpu-worker", "exit 2");
  Ran up = run(up_arguments() + " --detach");
  EXPECT_EQ(up.exit_code, 2);
  EXPECT_THAT(up.err, HasSubstr("strata-gpu-worker: fixture: cannot work like this"));
}

TEST_F(Up, NoticesThatTheFileWasChanged) {
  start_until_ready();
  EXPECT_FALSE(status()["config"].at("stale").as_bool());
  write_config("log:\n  level: debug\n");
  json::object all = status();
  EXPECT_TRUE(all["config"].at("stale").as_bool());
  EXPECT_THAT(std::string(all["config"].at("differences").at(0).as_string()),
              HasSubstr("log.level: 'info' runs, the file says 'debug'"));
  EXPECT_THAT(run("status --run-dir " + run_dir_).out, HasSubstr("changed since the start"));
  write_config("nonsense: 1\n");
  EXPECT_TRUE(status()["config"].at("stale").as_bool());
}

TEST(Command, HelpsEverywhere) {
  for (const char* arguments :
       {"", "up", "down", "status", "chat", "inspect", "config", "config check", "config show",
        "config reference", "profile", "profile record", "profile show", "version"}) {
    EXPECT_EQ(std::system(fmt::format(STRATA_PROGRAM " {} --help >/dev/null", arguments).c_str()), 0)
        << arguments;
  }
}

TEST(Command, NamesTheNearestWordAndFails) {
  auto fails_with = [](const std::string& arguments) {
    FILE* pipe = ::popen(fmt::format(STRATA_PROGRAM " {} 2>&1", arguments).c_str(), "r");
    std::string output;
    char piece[1024];
    while (std::size_t n = std::fread(piece, 1, sizeof piece, pipe)) output.append(piece, n);
    EXPECT_EQ(WEXITSTATUS(::pclose(pipe)), 2) << arguments;
    return output;
  };
  EXPECT_THAT(fails_with("up --confg x"), HasSubstr("did you mean --config?"));
  EXPECT_THAT(fails_with("statsu"), HasSubstr("did you mean status?"));
  EXPECT_THAT(fails_with("config chekc --config x"), HasSubstr("did you mean check?"));
  EXPECT_THAT(fails_with(""), HasSubstr("--help"));
  EXPECT_THAT(fails_with("up"), HasSubstr("--config"));
}

}  // namespace
}  // namespace strata::cli
