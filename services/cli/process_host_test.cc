// Real processes: small shell scripts.
#include "services/cli/process_host.h"

#include <gtest/gtest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <future>
#include <thread>

namespace strata::cli {
namespace {

using namespace std::chrono_literals;

class ProcessHostTest : public ::testing::Test {
 protected:
  ~ProcessHostTest() override {
    context_.stop();
    thread_.join();
  }

  std::future<sys::ExitStatus> start(const std::string& script, uint32_t* pid = nullptr) {
    ChildSpec spec;
    spec.name = "script";
    spec.arguments = {"/bin/sh", "-c", script};
    auto ended = std::make_shared<std::promise<sys::ExitStatus>>();
    auto started = host_.start(spec, [ended](sys::ExitStatus exit) { ended->set_value(exit); });
    EXPECT_TRUE(started.has_value());
    if (pid != nullptr && started) *pid = *started;
    return ended->get_future();
  }

  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{context_.get_executor()};
  AsioProcessHost host_{context_};
  std::thread thread_{[this] { context_.run(); }};
};

TEST_F(ProcessHostTest, SaysHowAProcessEnded) {
  auto exited = start("exit 7");
  auto killed = start("kill -9 $$");
  ASSERT_EQ(exited.wait_for(20s), std::future_status::ready);
  ASSERT_EQ(killed.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(exited.get().text(), "exit 7");
  EXPECT_EQ(killed.get().text(), "signal 9 (Killed)");
}

TEST_F(ProcessHostTest, SeesEveryOneOfManyShortLives) {
  std::vector<std::future<sys::ExitStatus>> ends;
  for (int i = 0; i < 40; ++i) ends.push_back(start(fmt::format("exit {}", i)));
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(ends[static_cast<std::size_t>(i)].wait_for(20s), std::future_status::ready) << i;
    EXPECT_EQ(ends[static_cast<std::size_t>(i)].get().value, i);
  }
}

TEST_F(ProcessHostTest, SendsSignals) {
  uint32_t pid = 0;
  auto ended = start("sleep 60", &pid);
  host_.signal(pid, SIGTERM);
  ASSERT_EQ(ended.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(ended.get().value, SIGTERM);
  host_.signal(pid, SIGTERM);  // gone: nothing happens
}

TEST_F(ProcessHostTest, SaysThatAProgramIsMissing) {
  ChildSpec spec;
  spec.arguments = {"/nonexistent/program"};
  auto started = host_.start(spec, [](sys::ExitStatus) { FAIL() << "it never ran"; });
  ASSERT_FALSE(started.has_value());
  EXPECT_NE(started.error().message().find("/nonexistent/program"), std::string::npos);
}

}  // namespace
}  // namespace strata::cli
