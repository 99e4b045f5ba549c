// The request log of a whole gateway: what is in it, and what is not.

#include <fstream>
#include <iterator>
#include <sstream>

#include "gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

class GatewayRequestLogTest : public testing::GatewayTest {
 protected:
  void SetUp() override {
    GatewayTest::SetUp();
    path_ = run_dir_ + "/requests.jsonl";
    settings_.gateway_request_log.set({path_});
    config::Secrets keys;
    keys.list.push_back(config::hash_secret("correct-horse"));
    settings_.gateway_api_keys.set(keys);
  }

  // Of the gateway that ran; stops it, so that all of it is there.
  std::string file() {
    gateway_.reset();
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::vector<boost::json::value> lines(const std::string& text) {
    std::vector<boost::json::value> out;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) out.push_back(boost::json::parse(line));
    return out;
  }

  static constexpr const char* kKey = "Authorization: Bearer correct-horse\r\n";
  std::string path_;
};

TEST_F(GatewayRequestLogTest, NothingThatWasSaidIsInItUnlessAskedFor) {
  start();
  ASSERT_EQ(post(testing::kChat, testing::chat("", "a secret question"), kKey).status, 200);
  ASSERT_EQ(post(testing::kChat, testing::chat(R"(,"stream":true)", "a secret question"), kKey).status, 200);
  ASSERT_EQ(post(testing::kChat, R"({"messages":"a secret fault"})", kKey).status, 400);
  const std::string text = file();
  for (const char* said : {"secret", "violin", "correct-horse"})
    EXPECT_EQ(text.find(said), std::string::npos);
  const auto all = lines(text);
  ASSERT_EQ(all.size(), 3u);
  for (std::size_t i : {0, 1}) {
    EXPECT_EQ(all[i].at("status"), 200);
    EXPECT_EQ(all[i].at("outcome"), "ok");
    EXPECT_EQ(all[i].at("endpoint"), "chat_completions");
    EXPECT_GT(all[i].at("usage").at("prompt_tokens").as_int64(), 0);
    EXPECT_GT(all[i].at("usage").at("completion_tokens").as_int64(), 0);
    EXPECT_TRUE(all[i].at("reuse").is_string());
    EXPECT_EQ(std::string_view(all[i].at("key").as_string()),
              config::hash_secret("correct-horse").text().substr(7, 8));
    EXPECT_GT(all[i].at("took_ms").to_number<double>(), 0);
  }
  EXPECT_EQ(all[2].at("status"), 400);
  EXPECT_EQ(all[2].at("outcome"), "bad_request");
  EXPECT_TRUE(all[2].at("reuse").is_null());
  EXPECT_TRUE(all[2].at("took_ms").is_null());
}

TEST_F(GatewayRequestLogTest, AClientThatLeavesIsInItWithWhatItCost) {
  start();
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  {
    testing::RawClient client(port_);
    client.request("POST", testing::kChat, testing::chat(R"(,"stream":true,"max_tokens":3000)"), kKey);
    ASSERT_TRUE(client.read_until(testing::kFirstPieces));
  }
  ASSERT_TRUE(until([this] { return std::filesystem::file_size(path_) > 0; }));
  const auto all = lines(file());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].at("outcome"), "client_cancel");
  EXPECT_GT(all[0].at("usage").at("completion_tokens").as_int64(), 0);
  EXPECT_GT(all[0].at("timings").at("predicted_ms").to_number<double>(), 0);
}

TEST_F(GatewayRequestLogTest, WithContentItHasTheBodyAndTheAnswerAlsoOfAStream) {
  settings_.gateway_request_log_content.set({"on"});
  start();
  const std::string body = testing::chat(R"(,"stream":true)", "a secret question");
  ASSERT_EQ(post(testing::kChat, body, kKey).status, 200);
  const auto all = lines(file());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(std::string_view(all[0].at("content").at("request").as_string()), body);
  EXPECT_EQ(all[0].at("content").at("answers").at(0), "A violin is a small stringed instrument.");
}

TEST_F(GatewayRequestLogTest, AFileThatCannotBeMadeIsAStartUpFault) {
  settings_.gateway_request_log.set({run_dir_ + "/missing/requests.jsonl"});
  auto started = Gateway::start({.settings = &settings_, .run_dir = run_dir_, .config_hash = "0123"});
  ASSERT_FALSE(started);
  for (const char* named : {"gateway.request_log", "requests.jsonl"})
    EXPECT_NE(std::string(started.error().message()).find(named), std::string::npos);
}

}  // namespace
}  // namespace strata::gateway
