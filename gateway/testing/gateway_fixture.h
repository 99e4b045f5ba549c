#pragma once
// A gateway over real sockets with fake keepers behind it: what its tests have in common.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <filesystem>
#include <functional>
#include <thread>

#include "gateway/gateway.h"
#include "gateway/testing/fake_engine.h"
#include "gateway/testing/raw_client.h"

namespace strata::gateway::testing {

inline constexpr const char* kChat = "/v1/chat/completions";
// In a stream of the usual script once it has begun: a word that is one token.
inline constexpr const char* kFirstPieces = R"("content":" is")";

inline std::string chat(std::string_view more = "", std::string_view content = "What is a violin?") {
  return fmt::format(R"({{"model":"any","messages":[{{"role":"user","content":"{}"}}]{}}})", content, more);
}

class GatewayTest : public ::testing::Test {
 protected:
  using milliseconds = std::chrono::milliseconds;

  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "strata-gateway-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    run_dir_ = folder;
    engine_ = std::make_unique<FakeEngine>(run_dir_);
    settings_.model_path.set({STRATA_SOURCE_DIR "/models/strata-demo.gguf"});
    settings_.model_name.set("org/demo");
    settings_.gateway_listen.set("127.0.0.1:0");
    settings_.thinking_template_variable.set("show_working");
    settings_.cpu_experts_workers.set(1);
  }
  void TearDown() override {
    gateway_.reset();
    engine_.reset();
    std::filesystem::remove_all(run_dir_);
  }

  void start(bool wait = true) {
    GatewayOptions options{.settings = &settings_, .run_dir = run_dir_, .config_hash = "0123"};
    options.http.handshake_timeout = handshake_timeout_;
    options.generation.backlog_bytes_max = 64 * 1024;
    auto started = Gateway::start(std::move(options));
    ASSERT_TRUE(started) << started.error().message();
    gateway_ = std::move(*started);
    const std::string& address = gateway_->address();
    port_ = static_cast<uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
    if (!wait) return;
    engine_->start();
    ASSERT_TRUE(until([this] { return get("/ready").status == 200; }));
  }

  static bool until(const std::function<bool()>& condition, milliseconds limit = std::chrono::seconds(30)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return true;
  }

  RawResponse get(std::string_view path) {
    RawClient client(port_);
    client.request("GET", path);
    return client.response();
  }
  RawResponse post(std::string_view path, std::string_view body, std::string_view headers = "") {
    RawClient client(port_);
    client.request("POST", path, body, headers);
    return client.response();
  }
  static boost::json::value json(const RawResponse& response) { return boost::json::parse(response.body); }
  static std::string content(const RawResponse& response) {
    return std::string(json(response).at("choices").at(0).at("message").at("content").as_string());
  }
  // The joined text of a stream.
  static std::string streamed(const std::string& body) {
    std::string text;
    for (std::size_t at = body.find("data: {"); at != std::string::npos; at = body.find("data: {", at + 1)) {
      auto chunk = boost::json::parse(body.substr(at + 6, body.find("\n\n", at) - at - 6));
      if (chunk.as_object().contains("error")) continue;
      for (const auto& choice : chunk.at("choices").as_array()) {
        if (const auto* piece = choice.at("delta").as_object().if_contains("content"))
          text += std::string_view(piece->as_string());
      }
    }
    return text;
  }
  // A value of /metrics; the series whose line begins so.
  double metric(std::string_view series) {
    const std::string text = get("/metrics").body;
    const std::size_t at = text.find(fmt::format("\n{} ", series));
    EXPECT_NE(at, std::string::npos) << series;
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
  }

  std::string run_dir_;
  config::Settings settings_;
  milliseconds handshake_timeout_{20'000};
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Gateway> gateway_;
  uint16_t port_ = 0;
};

}  // namespace strata::gateway::testing
