#include "gateway/request_log/request_log.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <filesystem>
#include <fstream>

#include "services/obs/metrics.h"

namespace strata::gateway {
namespace {

RequestRecord record(std::string id) {
  return {.ended = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'700'000'000'123)),
          .request_id = std::move(id),
          .key_hash = "sha256:" + std::string(64, 'a'),
          .status = 200,
          .took = std::chrono::milliseconds(250),
          .usage = {.prompt_tokens = 10, .completion_tokens = 4, .cached_tokens = 3},
          .reuse = "reused=3 prompt=10"};
}

TEST(RequestRecordTest, ALineHasTheNumbersAndNothingThatWasSaid) {
  const std::string line = to_line(record("r1"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = boost::json::parse(line);
  EXPECT_EQ(json.at("time"), "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(json.at("request_id"), "r1");
  EXPECT_EQ(json.at("endpoint"), "chat_completions");
  EXPECT_EQ(json.at("key"), "aaaaaaaa") << "only the beginning of the hash";
  EXPECT_EQ(json.at("outcome"), "ok");
  EXPECT_EQ(json.at("status"), 200);
  EXPECT_EQ(json.at("took_ms"), 250);
  EXPECT_EQ(json.at("usage").at("prompt_tokens"), 10);
  EXPECT_EQ(json.at("timings").at("prompt_n"), 7);
  EXPECT_EQ(json.at("reuse"), "reused=3 prompt=10");
  EXPECT_FALSE(json.as_object().contains("content"));
}

TEST(RequestRecordTest, WhatIsNotThereIsNull) {
  RequestRecord empty = record("r1");
  empty.key_hash = empty.reuse = "";
  empty.took.reset();
  const auto json = boost::json::parse(to_line(empty));
  EXPECT_TRUE(json.at("key").is_null());
  EXPECT_TRUE(json.at("took_ms").is_null());
  EXPECT_TRUE(json.at("reuse").is_null());
}

TEST(RequestRecordTest, ContentIsOneLineOfValidTextWhateverItIs) {
  RequestRecord spoken = record("r1");
  spoken.content = RequestContent{.request = "{\n\"a\": 1}", .answers = {"one\ntwo", "\xff"}};
  const std::string line = to_line(spoken);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto content = boost::json::parse(line).at("content");
  EXPECT_EQ(content.at("request"), "{\n\"a\": 1}");
  EXPECT_EQ(content.at("answers").at(0), "one\ntwo");
  EXPECT_EQ(content.at("answers").at(1), "\xef\xbf\xbd");
}

class RequestLogTest : public ::testing::Test {
 protected:
  RequestLogTest() : dropped_(metrics_.counter("dropped_total", "Dropped.")) {
    std::string folder = (std::filesystem::temp_directory_path() / "strata-request-log-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder_ + "/requests.jsonl";
  }
  ~RequestLogTest() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> ids() const {
    std::vector<std::string> out;
    std::ifstream in(path_);
    for (std::string line; std::getline(in, line);)
      out.emplace_back(boost::json::parse(line).at("request_id").as_string());
    return out;
  }
  // Through a log that ends behind them.
  void add(const std::vector<RequestRecord>& records, RequestLogOptions options = {}) {
    options.path = path_;
    auto log = RequestLog::open(std::move(options), dropped_);
    ASSERT_TRUE(log) << log.error().message();
    for (const RequestRecord& one : records) (*log)->add(one);
  }

  obs::Metrics metrics_{{}};
  prometheus::Counter& dropped_;
  std::string folder_, path_;
};

TEST_F(RequestLogTest, WhatWasAddedIsWrittenInOrderBeforeItEnds) {
  add({record("r1"), record("r2")});
  add({record("r3")});
  EXPECT_EQ(ids(), (std::vector<std::string>{"r1", "r2", "r3"}));
  EXPECT_EQ(dropped_.Value(), 0);
}

TEST_F(RequestLogTest, WhatDoesNotFitTheQueueIsDroppedAndCounted) {
  add({record("r1"), record("r2")}, {.queue_bytes_max = 1023});
  EXPECT_TRUE(ids().empty());
  EXPECT_EQ(dropped_.Value(), 2);

  RequestRecord spoken = record("r3");
  spoken.content = RequestContent{.request = std::string(800, 'a'), .answers = {std::string(300, 'b')}};
  add({spoken}, {.queue_bytes_max = 2047});
  EXPECT_TRUE(ids().empty()) << "what was said counts, too";
  EXPECT_EQ(dropped_.Value(), 3);
}

TEST_F(RequestLogTest, WhatCannotBeWrittenIsCountedAndTheNextIsTriedAgain) {
  RequestLogOptions options{.path = path_, .bytes_max = 1};
  auto log = RequestLog::open(options, dropped_);
  ASSERT_TRUE(log);
  std::ofstream(path_ + ".3") << "";
  std::filesystem::create_directories(path_ + ".4/in-the-way");  // a file cannot be renamed over it
  for (const char* id : {"r1", "r2", "r3"}) (*log)->add(record(id));
  log->reset();
  EXPECT_EQ(ids(), (std::vector<std::string>{"r1"}));
  EXPECT_EQ(dropped_.Value(), 2);
}

// Whatever the thread has got done by then.
TEST_F(RequestLogTest, WhatTheTimeAtTheEndDoesNotSufficeForIsCounted) {
  constexpr std::size_t kRecords = 2000;
  add(std::vector<RequestRecord>(kRecords, record("r")), {.flush_time = std::chrono::milliseconds(0)});
  EXPECT_EQ(static_cast<double>(ids().size()) + dropped_.Value(), kRecords);
}

TEST_F(RequestLogTest, AFileThatCannotBeMadeIsAnError) {
  auto log = RequestLog::open({.path = folder_ + "/missing/requests.jsonl"}, dropped_);
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace strata::gateway
