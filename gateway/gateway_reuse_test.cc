// What the next request of a conversation reuses, over real sockets: the engine and the store are fakes that
// keep states as the real ones do, and say so on their streams.

#include <gmock/gmock.h>

#include "gateway/generation/test_tokenizer.h"
#include "gateway/testing/fake_store.h"
#include "gateway/testing/gateway_fixture.h"
#include "gateway/testing/turn_record.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FakeStore;
using testing::GatewayTest;
using testing::kChat;
using testing::kFirstPieces;
using testing::RawClient;
using testing::RawResponse;
using testing::SeenCall;

constexpr const char* kQuestion =
    "Please say in one sentence what a violin is, what it is made of, how it is held and played, who builds "
    "it and "
    "who has built it before, and say nothing at all about the viola, the cello, or anybody who plays these.";
constexpr const char* kAnswer = "A violin is a small stringed instrument.";

using Turns = std::vector<std::pair<std::string, std::string>>;  // role, content

class GatewayReuseTest : public GatewayTest {
 protected:
  void SetUp() override {
    GatewayTest::SetUp();
    store_ = std::make_unique<FakeStore>(run_dir_);
    engine_->set_store(store_.get());
  }
  void TearDown() override {
    gateway_.reset();
    store_.reset();
    GatewayTest::TearDown();
  }

  void start_all() {
    store_->start();
    start();
    ASSERT_TRUE(until([this] { return known_to_index("vram") >= 0; }));
  }
  static std::string body(const Turns& turns, std::string_view more = "") {
    std::string messages;
    for (const auto& [role, content] : turns) {
      messages +=
          fmt::format(R"({}{{"role":"{}","content":"{}"}})", messages.empty() ? "" : ",", role, content);
    }
    return fmt::format(R"({{"return_reuse":true,"messages":[{}]{}}})", messages, more);
  }
  double known_to_index(std::string_view tier) {
    return metric(fmt::format(R"(strata_conv_entries{{tier="{}"}})", tier));
  }
  // The index has heard of everything that the engine keeps.
  ::testing::AssertionResult index_follows() {
    if (until([this] { return known_to_index("vram") == engine_->states(); })) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << known_to_index("vram") << " of " << engine_->states();
  }
  static uint32_t cached(const RawResponse& response) {
    return static_cast<uint32_t>(
        json(response).at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64());
  }
  static boost::json::object reuse(const RawResponse& response) {
    return json(response).at("choices").at(0).at("reuse").as_object();
  }
  void expect_sums() {
    double misses = 0, lookups = 0;
    for (const char* cause : {"new", "diverged", "evicted", "options_changed", "identity", "too_small",
                              "no_checkpoint", "error"}) {
      misses += metric(fmt::format(R"(strata_conv_misses_total{{cause="{}"}})", cause));
    }
    for (const char* result : {"hit_live", "hit_ram", "hit_disk", "hit_root", "miss"}) {
      lookups += metric(fmt::format(R"(strata_conv_lookups_total{{result="{}"}})", result));
    }
    EXPECT_EQ(misses, metric(R"(strata_conv_lookups_total{result="miss"})"));
    EXPECT_EQ(lookups, static_cast<double>(engine_->seen().size()));
  }

  std::unique_ptr<FakeStore> store_;
};

// ---- how a turn can end, and what the next one goes on from

struct TurnCase {
  const char* name = "";
  milliseconds prefill{0}, per_token{0};
  bool end_token_read = false;
  uint32_t fails_after = 0;
  const char* more = "";  // fields of the first request
  TurnEnd end = TurnEnd::kEndToken;
  bool goes_on = false;  // the client sends back what it has of the answer; else it asks again

  testing::Script script() const {
    testing::Script script;
    script.prefill = prefill;
    script.per_token = per_token;
    script.end_token_read = end_token_read;
    script.fails_after = fails_after;
    return script;
  }
};

class TurnEndTest : public GatewayReuseTest, public ::testing::WithParamInterface<TurnCase> {
 protected:
  // Sends the first turn, and leaves if that is how it ends.
  void first_turn(const TurnCase& turn) {
    if (turn.end != TurnEnd::kDisconnect) {
      const RawResponse response = post(kChat, body({{"user", kQuestion}}, turn.more));
      EXPECT_EQ(response.status, turn.end == TurnEnd::kError ? 500 : 200) << response.body;
      if (response.status == 200) shown_ = content(response);
      return;
    }
    RawClient client(port_);
    client.request("POST", kChat, body({{"user", kQuestion}}, turn.more));
    if (turn.prefill > seconds(0)) {
      ASSERT_TRUE(client.read_until(R"("processed":)"));
    } else {
      ASSERT_TRUE(client.read_until(kFirstPieces));
    }
    client.close();
  }
  std::string shown_;
};

TEST_P(TurnEndTest, WhatIsKeptIsWhatWasEmittedAndTheNextTurnGoesOnFromThere) {
  const TurnCase& turn = GetParam();
  engine_->set_script(turn.script());
  start_all();
  first_turn(turn);
  ASSERT_TRUE(until([this] { return engine_->running() == 0; }));
  ASSERT_TRUE(index_follows());
  const SeenCall first = engine_->seen().at(0);
  ASSERT_FALSE(first.checkpoints.empty());

  // The engine's state is made of the prompt and of tokens that it emitted, and of nothing else.
  const std::vector<int32_t> answer = test_tokenizer().encode_trusted(kAnswer);
  TurnRecord record(first.prompt_tokens);
  record.begin_call(0, {});
  const auto kept = engine_->kept();
  const uint32_t position = kept.empty() ? 0 : static_cast<uint32_t>(kept.back().size());
  for (uint32_t i = 0; i < answer.size(); ++i) ASSERT_TRUE(record.chose(i, answer[i]).ok());
  ASSERT_TRUE(record.chose_end(test_tokenizer().find_token("<|im_end|>")).ok());
  ASSERT_TRUE(record.keeps(position).ok());
  record.end(turn.end);
  const auto committed = record.committed();
  ASSERT_EQ(committed.has_value(), turn.end != TurnEnd::kError);
  if (committed) {
    EXPECT_TRUE(std::ranges::equal(committed->tokens, kept.back()));
  }

  Turns next{{"user", kQuestion}};
  if (turn.goes_on) {
    next.emplace_back("assistant", shown_);
    next.emplace_back("user", "And a cello?");
  }
  engine_->set_script({});
  const RawResponse second = post(kChat, body(next));
  ASSERT_EQ(second.status, 200) << second.body;
  const SeenCall seen = engine_->seen().at(1);
  // As far as the state goes if the prompt begins with it, else from the last checkpoint that was read.
  uint32_t expected = 0;
  if (committed && position < seen.prompt_tokens.size() &&
      std::ranges::equal(committed->tokens, std::span(seen.prompt_tokens).first(position))) {
    expected = position;
  }
  for (const uint32_t checkpoint : first.checkpoints) {
    if (position == 0 || checkpoint <= position) expected = std::max(expected, checkpoint);
  }
  EXPECT_GE(expected, 16u);
  EXPECT_EQ(cached(second), expected);
  EXPECT_EQ(reuse(second).at("reused_tokens"), expected);
  EXPECT_FALSE(reuse(second).at("state").is_null()) << "the index knew of another state";
  if (turn.end == TurnEnd::kEndToken || turn.end == TurnEnd::kLength) {
    // All but the template's own tail, and but the token that was chosen and not fed.
    const bool capped = turn.end == TurnEnd::kLength;
    const uint32_t shown = static_cast<uint32_t>(test_tokenizer().encode_trusted(shown_).size());
    EXPECT_EQ(expected,
              first.prompt_tokens.size() + shown - (capped ? 1 : 0) + (turn.end_token_read ? 1 : 0));
    EXPECT_EQ(reuse(second).at("source"), "live");
  }
  for (const uint32_t checkpoint : seen.checkpoints) EXPECT_GT(checkpoint, expected);
  expect_sums();
}

INSTANTIATE_TEST_SUITE_P(
    Ends, TurnEndTest,
    ::testing::Values(
        TurnCase{.name = "EndToken", .goes_on = true},
        TurnCase{.name = "EndTokenInsideAWindow", .end_token_read = true, .goes_on = true},
        TurnCase{.name = "LengthCap", .more = R"(,"max_tokens":5)", .end = TurnEnd::kLength, .goes_on = true},
        TurnCase{.name = "StopString",
                 .per_token = milliseconds(5),
                 .more = R"(,"stop":[" stringed"])",
                 .end = TurnEnd::kStopString,
                 .goes_on = true},
        TurnCase{.name = "ClientGoneInTheAnswer",
                 .per_token = milliseconds(50),
                 .more = R"(,"stream":true)",
                 .end = TurnEnd::kDisconnect},
        TurnCase{.name = "ClientGoneWhileThePromptWasRead",
                 .prefill = seconds(120),
                 .more = R"(,"stream":true,"return_progress":true)",
                 .end = TurnEnd::kDisconnect},
        TurnCase{.name = "Error", .fails_after = 3, .end = TurnEnd::kError}),
    [](const auto& test) { return test.param.name; });

// Some short messages, all of them within one chunk.
// Whether the engine captures states within windows.
class StatesOfAShortChat : public GatewayReuseTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Engines, StatesOfAShortChat, ::testing::Bool());

TEST_P(StatesOfAShortChat, AreKeptAtEveryMessageWhereTheyCostNoWindow) {
  const bool within = GetParam();
  engine_->set_chunks(1024, within);
  start_all();
  ASSERT_EQ(post("/v1/chat/completions", body({{"system", "You are a luthier."},
                                               {"user", "Which wood is best for the top?"},
                                               {"assistant", "Spruce, well seasoned."},
                                               {"user", "And which one for the back?"},
                                               {"assistant", "Maple, with a flame."},
                                               {"user", "And for the fingerboard of it?"}}))
                .status,
            200);
  // The first message of the user, the answer to it and so on, and the answer to come.
  EXPECT_EQ(engine_->seen().at(0).checkpoints.size(), within ? 6u : 2u);
}

// Anthropic's third number: what was read up to the last state that the engine kept of the prompt.
TEST_F(GatewayReuseTest, UsageSaysHowMuchOfAPromptWasKeptForLaterRequests) {
  start_all();
  const auto usage = [&](const Turns& turns) {
    std::string request = body(turns, R"(,"model":"m","max_tokens":64)");
    return json(post("/v1/messages", request)).at("usage").as_object();
  };
  const auto first = usage({{"user", kQuestion}});
  const std::vector<uint32_t> kept = engine_->seen().at(0).checkpoints;
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(first.at("cache_creation_input_tokens"), kept.back());
  EXPECT_EQ(first.at("cache_read_input_tokens"), 0);
  ASSERT_TRUE(index_follows());
  const auto same = usage({{"user", kQuestion}});
  EXPECT_EQ(same.at("cache_read_input_tokens"), kept.back());
  EXPECT_EQ(same.at("cache_creation_input_tokens"), 0) << "nothing new was kept";
  ASSERT_TRUE(index_follows());
  const auto next = usage({{"user", kQuestion}, {"assistant", kAnswer}, {"user", "And a cello?"}});
  const SeenCall seen = engine_->seen().at(2);
  ASSERT_FALSE(seen.checkpoints.empty());
  EXPECT_EQ(next.at("cache_read_input_tokens"), seen.reused_tokens);
  EXPECT_EQ(next.at("cache_creation_input_tokens"), seen.checkpoints.back() - seen.reused_tokens);
  EXPECT_EQ(next.at("input_tokens"), seen.prompt_tokens.size() - seen.checkpoints.back());
}

// ---- parked states

TEST_F(GatewayReuseTest, AnAnswerThatLosesItsEngineGoesOnFromWhatIsParked) {
  engine_->set_script({.per_token = milliseconds(60)});
  start_all();
  RawClient client(port_);
  client.request("POST", kChat, body({{"user", kQuestion}}, R"(,"stream":true,"seed":5)"));
  ASSERT_TRUE(client.read_until(kFirstPieces));
  const SeenCall first = engine_->seen().at(0);
  const SnapshotId base{.high = 0x570e, .low = 1}, id{.high = 0x570e, .low = 2};
  const auto parked_tokens = static_cast<uint32_t>(first.prompt_tokens.size());
  auto begin = first.prompt_tokens.begin();
  store_->park(base, key_namespace(""), {begin, begin + 20}, /*on_disk_only=*/true);
  store_->park(id, key_namespace(""), {begin + 18, first.prompt_tokens.end()}, /*on_disk_only=*/true, base,
               18);
  ASSERT_TRUE(until([this] { return known_to_index("disk") == 2; }));
  engine_->die();
  engine_->start();
  const RawResponse response = client.response();
  EXPECT_EQ(streamed(response.body), kAnswer);
  ASSERT_EQ(engine_->seen().size(), 2u);
  const SeenCall second = engine_->seen().at(1);
  EXPECT_EQ(second.parked_id, id.bytes());
  EXPECT_EQ(second.parked_tokens, parked_tokens);
  EXPECT_EQ(second.reused_tokens, parked_tokens) << "all of the prompt; the answer's tokens are fed again";
  EXPECT_EQ(second.name_space, key_namespace("").bytes());
  EXPECT_FALSE(second.generated_tokens.empty());
  EXPECT_EQ(second.seed, 5u);
  EXPECT_EQ(metric("strata_request_resubmissions_total"), 1);
}

TEST_F(GatewayReuseTest, ALostSnapshotCostsReadingAndIsSaid) {
  start_all();
  ASSERT_EQ(post(kChat, body({{"user", kQuestion}})).status, 200);
  const SeenCall first = engine_->seen().at(0);
  const SnapshotId id{.high = 0x570e, .low = 2};
  std::vector<int32_t> tokens = first.prompt_tokens;
  const std::vector<int32_t> answer = test_tokenizer().encode_trusted(kAnswer);
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  tokens.push_back(test_tokenizer().find_token("<|im_end|>"));
  store_->park(id, key_namespace(""), tokens, /*on_disk_only=*/false);
  ASSERT_TRUE(until([this] { return known_to_index("ram") == 1; }));
  store_->lose(id);
  ASSERT_TRUE(index_follows());
  const RawResponse second =
      post(kChat, body({{"user", kQuestion}, {"assistant", kAnswer}, {"user", "And a cello?"}}));
  EXPECT_EQ(engine_->seen().at(1).parked_id, id.bytes());
  EXPECT_EQ(content(second), kAnswer);
  EXPECT_EQ(cached(second), tokens.size() - 1) << "what the device held";
  EXPECT_EQ(reuse(second).at("why_not_more").at("cause"), "error");
  EXPECT_EQ(std::string_view(reuse(second).at("why_not_more").at("text").as_string()),
            fmt::format("a state with {} tokens could not be restored: no such snapshot", tokens.size()));
  EXPECT_THAT(second.headers.at("x-strata-reuse"), ::testing::HasSubstr("source=live not_more=error"));
  expect_sums();
}

TEST_F(GatewayReuseTest, WhatIsOnDiskIsFoundAgainAfterTheCacheManagerWasAway) {
  start_all();
  ASSERT_EQ(post(kChat, body({{"user", kQuestion}})).status, 200);
  const SeenCall first = engine_->seen().at(0);
  const SnapshotId id{.high = 0x570e, .low = 2};
  store_->park(id, key_namespace(""), {first.prompt_tokens.begin(), first.prompt_tokens.end() - 1}, true);
  ASSERT_TRUE(until([this] { return known_to_index("disk") == 1; }));
  store_->die();
  ASSERT_TRUE(until([this] { return known_to_index("disk") == 0; }));
  engine_->die();  // and with it what was on the device
  ASSERT_TRUE(until([this] { return get("/ready").status == 503; }));
  engine_->start();
  ASSERT_TRUE(until([this] { return get("/ready").status == 200; }));
  const RawResponse without = post(kChat, body({{"user", kQuestion}}));
  EXPECT_EQ(cached(without), 0u);
  EXPECT_EQ(reuse(without).at("why_not_more").at("cause"), "evicted");

  engine_->die();
  ASSERT_TRUE(until([this] { return get("/ready").status == 503; }));
  store_->start();
  engine_->start();
  ASSERT_TRUE(until([this] { return get("/ready").status == 200 && known_to_index("disk") == 1; }));
  const RawResponse restored = post(kChat, body({{"user", kQuestion}}));
  EXPECT_EQ(cached(restored), first.prompt_tokens.size() - 1);
  EXPECT_TRUE(reuse(restored).at("why_not_more").is_null());
  EXPECT_EQ(metric(R"(strata_conv_lookups_total{result="hit_ram"})"), 1) << "the engine says what it was";
  expect_sums();
}

}  // namespace
}  // namespace strata::gateway
