// /v1/responses over real sockets, with a scripted engine behind: the cases of the API by number.

#include <sys/stat.h>

#include <algorithm>

#include "gateway/api/json_text.h"
#include "gateway/generation/test_tokenizer.h"
#include "gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using testing::RawClient;
using testing::RawResponse;

constexpr const char* kResponses = "/v1/responses";
constexpr const char* kAnswer = "A violin is a small stringed instrument.";
constexpr const char* kTools =
    R"(,"tools":[{"type":"function","name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}},)"
    R"({"type":"web_search"}])";
constexpr const char* kCall =
    "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";

std::string ask(std::string_view more = "", std::string_view input = R"("What is a violin?")") {
  return fmt::format(R"({{"model":"any","input":{}{}}})", input, more);
}

class ResponsesTest : public testing::GatewayTest {
 protected:
  boost::json::object respond(const std::string& body, std::string_view headers = "") {
    RawResponse response = post(kResponses, body, headers);
    EXPECT_EQ(response.status, 200) << response.body;
    return json(response).get_object();
  }
  static std::string text_of(const boost::json::object& response) {
    return std::string(response.at("output").as_array().back().at("content").at(0).at("text").as_string());
  }
  static std::string id_of(const boost::json::object& response) {
    return std::string(response.at("id").as_string());
  }
  static std::string error_code(const RawResponse& response) {
    const boost::json::value body = json(response);
    const boost::json::value& code = body.at("error").at("code");
    return code.is_null() ? "null" : std::string(code.as_string());
  }
  RawResponse remove(const std::string& path, std::string_view headers = "") {
    RawClient client(port_);
    client.request("DELETE", path, "", headers);
    return client.response();
  }
  void start_again() {
    start(/*wait=*/false);
    ASSERT_TRUE(until([this] { return get("/ready").status == 200; }));
  }
  std::string go_on_from(const boost::json::object& response) {
    return fmt::format(R"(,"previous_response_id":"{}")", id_of(response));
  }
  std::vector<int32_t> last_prompt() { return engine_->seen().back().prompt_tokens; }
  std::string last_prompt_text() { return test_tokenizer().decode(last_prompt()); }
  // What the last call's prompt begins with if what was read and generated before is rendered as it was.
  static bool begins_with(const std::vector<int32_t>& prompt, std::vector<int32_t> earlier,
                          std::string_view generated) {
    const auto more = test_tokenizer().encode_trusted(std::string(generated));
    earlier.insert(earlier.end(), more.begin(), more.end());
    return prompt.size() > earlier.size() && std::equal(earlier.begin(), earlier.end(), prompt.begin());
  }
};

TEST_F(ResponsesTest, Case27AResponseWithItsUsage) {
  start();
  const auto response = respond(ask(R"(,"instructions":"Be brief.","metadata":{"a":"b"},"temperature":0.5)"));
  EXPECT_EQ(response.at("object"), "response");
  EXPECT_EQ(response.at("status"), "completed");
  EXPECT_EQ(response.at("model"), "org/demo");
  EXPECT_TRUE(id_of(response).starts_with("resp_"));
  EXPECT_EQ(id_of(response).size(), 5u + 32) << "ids must not be guessed";
  EXPECT_EQ(text_of(response), kAnswer);
  EXPECT_EQ(response.at("temperature"), 0.5);
  EXPECT_EQ(response.at("store"), true);
  EXPECT_EQ(response.at("metadata").at("a"), "b");
  EXPECT_FALSE(response.contains("warnings"));
  const auto& usage = response.at("usage").as_object();
  EXPECT_EQ(usage.at("total_tokens").to_number<int>(),
            usage.at("input_tokens").to_number<int>() + usage.at("output_tokens").to_number<int>());
  EXPECT_NE(last_prompt_text().find("system\nBe brief."), std::string::npos);
  EXPECT_EQ(metric(R"(strata_requests_total{endpoint="responses",outcome="ok"})"), 1);
}

TEST_F(ResponsesTest, Case28AStreamEndsWithWhatTheStoreHas) {
  start();
  RawResponse stream = post(kResponses, ask(R"(,"stream":true)"));
  ASSERT_EQ(stream.status, 200);
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
  const std::size_t at = stream.body.find("event: response.completed\ndata: ");
  ASSERT_NE(at, std::string::npos) << stream.body;
  EXPECT_EQ(stream.body.find("[DONE]"), std::string::npos);
  const std::size_t data = at + 32;
  auto last = boost::json::parse(stream.body.substr(data, stream.body.find("\n\n", data) - data));
  const auto& response = last.at("response").as_object();
  EXPECT_EQ(text_of(response), kAnswer);
  RawResponse stored = get(fmt::format("{}/{}", kResponses, id_of(response)));
  EXPECT_EQ(stored.status, 200);
  EXPECT_EQ(json(stored).as_object(), response);
}

TEST_F(ResponsesTest, Case28ALongSilenceIsFilledWithEvents) {
  settings_.gateway_keepalive_ms.set(100);
  engine_->set_script({.prefill = milliseconds(1000)});
  start();
  RawResponse stream = post(kResponses, ask(R"(,"stream":true)"));
  std::size_t count = 0;
  for (std::size_t at = 0; (at = stream.body.find("event: response.in_progress", at)) != std::string::npos;
       ++at)
    ++count;
  EXPECT_GE(count, 3u);
}

TEST_F(ResponsesTest, Case29ACallAndItsResultComeBackAsTheyWere) {
  engine_->set_script({.text = kCall});
  start();
  const auto first = respond(ask(kTools));
  const auto prompt = last_prompt();
  const auto& output = first.at("output").as_array();
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(output[1].at("type"), "function_call");
  EXPECT_EQ(output[1].at("arguments"), R"({"city": "Paris"})");
  EXPECT_NE(std::string(first.at("warnings").at(0).as_string()).find("web_search"), std::string::npos);
  const std::string call_id(output[1].at("call_id").as_string());
  const std::string result =
      fmt::format(R"({{"type":"function_call_output","call_id":"{}","output":"20 degrees"}})", call_id);

  engine_->set_script({.text = "It is warm."});
  const auto second = respond(ask(kTools + go_on_from(first), fmt::format("[{}]", result)));
  EXPECT_TRUE(begins_with(last_prompt(), prompt, kCall)) << last_prompt_text();
  EXPECT_GT(second.at("usage").at("input_tokens_details").at("cached_tokens").to_number<std::size_t>(),
            prompt.size());
  const auto stored_prompt = last_prompt();

  // The client that keeps the items itself gets the same prompt.
  std::string items = R"({"role":"user","content":"What is a violin?"})";
  for (const auto& item : output) items.append(",").append(to_json(item));
  respond(ask(std::string(kTools) + R"(,"store":false)", fmt::format("[{},{}]", items, result)));
  EXPECT_EQ(last_prompt(), stored_prompt);

  respond(ask(kTools + go_on_from(second), R"("And tomorrow?")"));
  EXPECT_TRUE(begins_with(last_prompt(), stored_prompt, "It is warm.")) << last_prompt_text();
}

TEST_F(ResponsesTest, Case29NamespacesAndFreeFormTools) {
  const std::string tools =
      R"(,"tools":[{"type":"namespace","name":"mcp__w","tools":[{"type":"function","name":"lookup"}]},{"type":"custom","name":"shout"}])";
  engine_->set_script(
      {.text = "<tool_call>\n{\"name\": \"mcp__w__lookup\", \"arguments\": {}}\n</tool_call>\n"
               "<tool_call>\n{\"name\": \"shout\", \"arguments\": {\"input\": \"HEY\"}}\n</tool_call>"});
  start();
  const auto response = respond(ask(tools));
  const auto& output = response.at("output").as_array();
  ASSERT_EQ(output.size(), 2u) << to_json(response);
  EXPECT_EQ(output[0].at("name"), "lookup");
  EXPECT_EQ(output[0].at("namespace"), "mcp__w");
  EXPECT_EQ(output[1].at("type"), "custom_tool_call");
  EXPECT_EQ(output[1].at("input"), "HEY");
  EXPECT_NE(output[0].at("call_id"), output[1].at("call_id"));
  respond(ask(tools + go_on_from(response),
              R"([{"type":"custom_tool_call_output","call_id":"x","output":"done"}])"));
  EXPECT_NE(last_prompt_text().find(R"({"name": "shout", "arguments": {"input": "HEY"}})"),
            std::string::npos);
}

TEST_F(ResponsesTest, Case29WhatIsNotThereIsRefusedWithACode) {
  start();
  RawResponse unknown = post(kResponses, ask(R"(,"previous_response_id":"resp_none")"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(error_code(unknown), "previous_response_not_found");
  EXPECT_EQ(error_code(post(kResponses, ask("", R"([{"type":"item_reference","id":"msg_none_0"}])"))),
            "item_not_found");
  RawResponse background = post(kResponses, ask(R"(,"background":true)"));
  EXPECT_EQ(background.status, 400);
  EXPECT_EQ(json(background).at("error").at("param"), "background");
  EXPECT_EQ(post(kResponses, "{").status, 400);
  EXPECT_EQ(metric(R"(strata_requests_total{endpoint="responses",outcome="bad_request"})"), 4);
  EXPECT_EQ(engine_->seen().size(), 0u);
}

TEST_F(ResponsesTest, Case30TheCapAndAnEngineThatFails) {
  start();
  const auto cut = respond(ask(R"(,"max_output_tokens":3)"));
  EXPECT_EQ(cut.at("status"), "incomplete");
  EXPECT_EQ(cut.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(cut.at("usage").at("output_tokens"), 3);
  engine_->set_script({.fails_after = 2});
  RawResponse failed = post(kResponses, ask(R"(,"stream":true)"));
  EXPECT_NE(failed.body.find("event: response.failed\n"), std::string::npos) << failed.body;
  EXPECT_EQ(failed.body.find("response.completed"), std::string::npos);
  EXPECT_EQ(post(kResponses, ask()).status, 500);
}

// Of a request that is no stream nobody knows the id.
TEST_F(ResponsesTest, Case30StreamsThatFailOrAreLeftCanBeLookedUpAndGoneOnFrom) {
  start();
  const auto id_in = [](const std::string& stream) {
    const std::size_t at = stream.find("resp_");
    return stream.substr(at, stream.find('"', at) - at);
  };
  engine_->set_script({.fails_after = 2});
  const RawResponse failed = post(kResponses, ask(R"(,"stream":true)"));
  auto kept = json(get(fmt::format("{}/{}", kResponses, id_in(failed.body)))).as_object();
  EXPECT_EQ(kept.at("status"), "failed");
  EXPECT_EQ(kept.at("error").at("code"), "engine_error");
  EXPECT_EQ(kept.at("output").at(0).at("status"), "incomplete");
  EXPECT_EQ(post(kResponses, ask()).status, 500);
  EXPECT_EQ(metric("strata_responses_stored"), 1);

  engine_->set_script({.text = "Part", .quiet_after = 1});
  RawClient client(port_);
  client.request("POST", kResponses, ask(R"(,"stream":true)"));
  ASSERT_TRUE(client.read_until("output_text.delta"));
  const std::string path = fmt::format("{}/{}", kResponses, id_in(client.received()));
  EXPECT_EQ(get(path).status, 404) << "not before it is over";
  client.close();
  ASSERT_TRUE(until([&] { return get(path).status == 200; }));
  kept = json(get(path)).as_object();
  EXPECT_EQ(kept.at("status"), "cancelled");
  EXPECT_TRUE(kept.at("error").is_null());
  EXPECT_EQ(kept.at("output").at(0).at("status"), "incomplete");

  engine_->set_script({});
  EXPECT_EQ(respond(ask(go_on_from(kept))).at("status"), "completed");
  RawClient unwanted(port_);
  engine_->set_script({.text = "Part", .quiet_after = 1});
  unwanted.request("POST", kResponses, ask(R"(,"stream":true,"store":false)"));
  ASSERT_TRUE(unwanted.read_until("output_text.delta"));
  unwanted.close();
  ASSERT_TRUE(until([&] { return engine_->running() == 0; }));
  EXPECT_EQ(metric("strata_responses_stored"), 3) << "what shall not be stored is not";
}

TEST_F(ResponsesTest, StoredResponsesAreListedAndDeleted) {
  start();
  const auto first = respond(ask());
  const std::string path = fmt::format("{}/{}", kResponses, id_of(first));
  EXPECT_EQ(json(get(path)).as_object(), first);
  const auto items = json(get(path + "/input_items")).as_object();
  EXPECT_EQ(items.at("object"), "list");
  ASSERT_EQ(items.at("data").as_array().size(), 1u);
  EXPECT_EQ(items.at("data").at(0).at("content").at(0).at("text"), "What is a violin?");
  EXPECT_EQ(items.at("first_id"), items.at("data").at(0).at("id"));
  EXPECT_EQ(items.at("has_more"), false);

  RawResponse cancel = post(path + "/cancel", "");
  EXPECT_EQ(cancel.status, 400);
  EXPECT_EQ(error_code(cancel), "not_in_background");

  // An item of it can be referred to.
  const std::string reference =
      fmt::format(R"([{{"type":"item_reference","id":"{}"}},{{"role":"user","content":"So?"}}])",
                  std::string_view(first.at("output").at(0).at("id").as_string()));
  const auto referring = respond(ask("", reference));
  EXPECT_NE(last_prompt_text().find(std::string("assistant\n") + kAnswer), std::string::npos)
      << last_prompt_text();

  RawResponse deleted = remove(path);
  EXPECT_EQ(deleted.status, 200);
  EXPECT_EQ(json(deleted).at("deleted"), true);
  for (const RawResponse& gone :
       {get(path), remove(path), get(path + "/input_items"), post(path + "/cancel", "")}) {
    EXPECT_EQ(gone.status, 404);
    EXPECT_EQ(error_code(gone), "response_not_found");
  }
  EXPECT_EQ(error_code(post(kResponses, ask(go_on_from(first)))), "previous_response_not_found");
  respond(ask(go_on_from(referring)));
  EXPECT_NE(last_prompt_text().find(kAnswer), std::string::npos) << "what it referred to was kept with it";
  EXPECT_EQ(metric("strata_responses_stored"), 2);
}

TEST_F(ResponsesTest, InputItemsComeInPages) {
  start();
  const auto response =
      respond(ask("", R"([{"role":"user","content":"a","id":"one"},{"role":"user","content":"b","id":"two"},)"
                      R"({"role":"user","content":"c","id":"three"}])"));
  const std::string path = fmt::format("{}/{}/input_items", kResponses, id_of(response));
  const auto page = [&](const std::string& query) {
    const auto list = json(get(path + query)).as_object();
    std::string ids;
    for (const auto& item : list.at("data").as_array()) ids += std::string(item.at("id").as_string()) + " ";
    return ids + (list.at("has_more").as_bool() ? "more" : "");
  };
  EXPECT_EQ(page(""), "three two one ");
  EXPECT_EQ(page("?order=asc&limit=2"), "one two more");
  EXPECT_EQ(page("?order=asc&limit=2&after=two"), "three ");
  EXPECT_EQ(page("?after=one"), "");
  for (const char* wrong : {"?order=up", "?limit=0", "?limit=101", "?limit=x", "?after=nobody"})
    EXPECT_EQ(get(path + wrong).status, 400) << wrong;
}

TEST_F(ResponsesTest, WhatShallNotBeStoredIsNot) {
  start();
  const auto first = respond(ask(R"(,"store":false)"));
  EXPECT_EQ(first.at("store"), false);
  EXPECT_EQ(get(fmt::format("{}/{}", kResponses, id_of(first))).status, 404);
  EXPECT_EQ(metric("strata_responses_stored"), 0);
}

TEST_F(ResponsesTest, WithoutAStoreEverythingElseWorks) {
  settings_.responses_store.set({"off"});
  start();
  const auto first = respond(ask(R"(,"store":true)"));
  EXPECT_EQ(first.at("store"), false);
  RawResponse next = post(kResponses, ask(go_on_from(first)));
  EXPECT_EQ(next.status, 400);
  EXPECT_EQ(error_code(next), "storage_off");
  EXPECT_EQ(error_code(post(kResponses, ask("", R"([{"type":"item_reference","id":"msg_a_0"}])"))),
            "storage_off");
  const std::string path = fmt::format("{}/{}", kResponses, id_of(first));
  EXPECT_EQ(get(path).status, 404);
  EXPECT_EQ(remove(path).status, 404);
  EXPECT_FALSE(std::filesystem::exists(run_dir_ + "/responses.sqlite"));
}

TEST_F(ResponsesTest, ResponsesOutliveTheGatewayAndADamagedFileDoesNotStopIt) {
  settings_.responses_file.set({run_dir_ + "/kept.sqlite"});
  start();
  const auto first = respond(ask());
  const auto prompt = last_prompt();
  gateway_.reset();
  struct stat info{};
  ASSERT_EQ(::stat((run_dir_ + "/kept.sqlite").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  start_again();
  respond(ask(go_on_from(first), R"("And a cello?")"));
  EXPECT_TRUE(begins_with(last_prompt(), prompt, kAnswer));
  gateway_.reset();
  std::filesystem::resize_file(run_dir_ + "/kept.sqlite", 100);
  start_again();
  EXPECT_EQ(get(fmt::format("{}/{}", kResponses, id_of(first))).status, 404);
  respond(ask());
  EXPECT_TRUE(std::ranges::any_of(std::filesystem::directory_iterator(run_dir_), [](const auto& entry) {
    return entry.path().string().find("kept.sqlite.set-aside-") != std::string::npos;
  }));
}

TEST_F(ResponsesTest, AKeySeesOnlyItsOwn) {
  config::Secrets keys;
  for (const char* key : {"key-one", "key-two"}) keys.list.push_back(config::hash_secret(key));
  settings_.gateway_api_keys.set(keys);
  start();
  const std::string mine = "Authorization: Bearer key-one\r\n", yours = "x-api-key: key-two\r\n";
  const auto first = respond(ask(), mine);
  const std::string path = fmt::format("{}/{}", kResponses, id_of(first));
  RawClient client(port_);
  client.request("GET", path, "", mine);
  EXPECT_EQ(client.response().status, 200);
  client.request("GET", path, "", yours);
  EXPECT_EQ(client.response().status, 404);
  EXPECT_EQ(post(kResponses, ask(go_on_from(first)), yours).status, 404);
  EXPECT_EQ(remove(path, yours).status, 404);
  EXPECT_EQ(get(path).status, 401);
  EXPECT_EQ(post(kResponses, ask(go_on_from(first)), mine).status, 200);
}

TEST_F(ResponsesTest, AFileThatCannotBeMadeIsAStartUpFault) {
  settings_.responses_file.set({run_dir_ + "/none/kept.sqlite"});
  GatewayOptions options{.settings = &settings_, .run_dir = run_dir_, .config_hash = "0123"};
  auto started = Gateway::start(std::move(options));
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message().find("none/kept.sqlite"), std::string::npos)
      << started.error().message();
}

TEST_F(ResponsesTest, MethodsOfTheRoutes) {
  start();
  for (const auto& [method, path, allow] : std::vector<std::tuple<const char*, const char*, const char*>>{
           {"GET", "/v1/responses", "POST, OPTIONS"},
           {"POST", "/v1/responses/resp_1", "GET, HEAD, DELETE, OPTIONS"},
           {"POST", "/v1/responses/resp_1/input_items", "GET, HEAD, OPTIONS"},
           {"GET", "/v1/responses/resp_1/cancel", "POST, OPTIONS"}}) {
    RawClient client(port_);
    client.request(method, path, "");
    RawResponse response = client.response();
    EXPECT_EQ(response.status, 405) << path;
    EXPECT_EQ(response.headers.at("allow"), allow);
  }
  for (const char* path : {"/v1/responses/compact", "/v1/responses/input_tokens"})
    EXPECT_EQ(post(path, "{}").status, 501);
  EXPECT_EQ(get("/v1/responses/resp_1/else/where").status, 404);
}

}  // namespace
}  // namespace strata::gateway
