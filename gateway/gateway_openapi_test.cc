// /openapi.json says what is served, all of it, and what a gateway answers is what it says.

#include <algorithm>
#include <set>

#include "gateway/api/json_text.h"
#include "gateway/http/routes.h"
#include "gateway/openapi/document.h"
#include "gateway/testing/gateway_fixture.h"
#include "services/grammar/schema_checker.h"

namespace strata::gateway {
namespace {

using boost::json::object;
using boost::json::value;
using testing::RawClient;
using testing::RawResponse;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

const object& document() {
  static const value parsed = boost::json::parse(openapi_document());
  return parsed.get_object();
}

const object& resolved(const value& described) {
  const value* reference = described.get_object().if_contains("$ref");
  if (reference == nullptr) return described.get_object();
  static const value whole = document();
  return whole.at_pointer(std::string_view(reference->get_string()).substr(1)).get_object();
}

// A reference is good when what it names is there.
void check_references(const value& part, const value& whole) {
  if (part.is_array()) {
    for (const value& element : part.get_array()) check_references(element, whole);
  } else if (part.is_object()) {
    for (const auto& member : part.get_object()) {
      if (member.key() == "$ref") {
        boost::json::error_code error;
        EXPECT_NE(whole.find_pointer(std::string_view(member.value().get_string()).substr(1), error), nullptr)
            << to_json(part);
      } else {
        check_references(member.value(), whole);
      }
    }
  }
}

TEST(OpenApiDocumentTest, NamesEveryRouteAndNoOther) {
  std::set<std::string> served, described;
  for (const ServedRoute& route : served_routes())
    served.insert(fmt::format("{} {}", lower(route.method), route.path));
  for (const auto& path : document().at("paths").get_object()) {
    for (const auto& operation : path.value().get_object())
      described.insert(fmt::format("{} {}", std::string_view(operation.key()), std::string_view(path.key())));
  }
  EXPECT_EQ(served, described);
}

TEST(OpenApiDocumentTest, IsWholeInItself) {
  EXPECT_TRUE(std::string_view(document().at("openapi").get_string()).starts_with("3.1"));
  check_references(document(), document());
  std::set<std::string> ids;
  for (const auto& path : document().at("paths").get_object()) {
    for (const auto& operation : path.value().get_object()) {
      const object& described = operation.value().get_object();
      EXPECT_TRUE(ids.emplace(described.at("operationId").get_string()).second) << path.key();
      std::set<std::string> named;
      if (const value* parameters = described.if_contains("parameters")) {
        for (const value& parameter : parameters->get_array()) {
          if (parameter.at("in") == "path")
            named.insert(fmt::format("{{{}}}", parameter.at("name").get_string().c_str()));
        }
      }
      for (const std::string& name : named)
        EXPECT_NE(std::string_view(path.key()).find(name), std::string::npos);
      EXPECT_EQ(named.empty(), std::string_view(path.key()).find('{') == std::string::npos) << path.key();
    }
  }
}

class OpenApiTest : public testing::GatewayTest {
 protected:
  // `path`: as the document has it, from the braces on `rest` instead.
  RawResponse ask(const std::string& method, const std::string& path, const std::string& body = "",
                  const std::string& rest = "", const std::string& headers = "") {
    RawClient client(port_);
    client.request(method, path.substr(0, path.find('{')) + rest, body, headers);
    RawResponse response = client.response();
    check(method, path, response);
    return response;
  }

  static void check(const std::string& method, const std::string& path, const RawResponse& response) {
    const object& operation = document().at("paths").at(path).at(lower(method)).get_object();
    const std::string about = fmt::format("{} {}: {} {}", method, path, response.status, response.body);
    const value* described =
        operation.at("responses").get_object().if_contains(std::to_string(response.status));
    ASSERT_NE(described, nullptr) << "a status that is not described: " << about;
    const std::string type =
        response.headers.at("content-type").substr(0, response.headers.at("content-type").find(';'));
    const value* content = resolved(*described).at("content").get_object().if_contains(type);
    ASSERT_NE(content, nullptr) << "a content type that is not described: " << about;
    // References of the schema point into the document.
    object root;
    root["components"] = document().at("components");
    root["allOf"] = boost::json::array{content->at("schema")};
    const value schema = std::move(root);
    const grammar::SchemaChecker checker(schema);
    if (type == "application/json") {
      EXPECT_TRUE(checker.accepts(boost::json::parse(response.body))) << about;
    } else if (type == "text/event-stream") {
      int events = 0;
      for (std::size_t at = response.body.find("data: {"); at != std::string::npos;
           at = response.body.find("data: {", at + 1), ++events) {
        const std::string data = response.body.substr(at + 6, response.body.find("\n\n", at) - at - 6);
        EXPECT_TRUE(checker.accepts(boost::json::parse(data))) << data;
      }
      EXPECT_GT(events, 1) << about;
    } else {
      EXPECT_TRUE(checker.accepts(value(response.body))) << about;
    }
  }
};

constexpr const char* kUser = R"("messages":[{"role":"user","content":"What is a violin?"}])";
constexpr const char* kCalls =
    "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"input\": "
    "\"x\"}}\n</tool_call>";

TEST_F(OpenApiTest, TheDocumentIsServedAsItIs) {
  start();
  RawResponse response = ask("GET", "/openapi.json");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, openapi_document());
}

TEST_F(OpenApiTest, SmallAnswersAreAsDescribed) {
  start();
  for (const char* path :
       {"/", "/live", "/health", "/v1/health", "/ready", "/metrics", "/props", "/slots", "/v1/models"})
    EXPECT_EQ(ask("GET", path).status, 200) << path;
  EXPECT_EQ(ask("GET", "/v1/models/{model}", "", "org/demo").status, 200);
  EXPECT_EQ(ask("GET", "/v1/models/{model}", "", "none").status, 404);
  for (const char* path : {"/tokenize", "/v1/tokenize"}) {
    EXPECT_EQ(ask("POST", path, R"({"content":"A violin","with_pieces":true})").status, 200);
    EXPECT_EQ(ask("POST", path, "{}").status, 400);
  }
  EXPECT_EQ(ask("POST", "/detokenize", R"({"tokens":[1,2]})").status, 200);
  EXPECT_EQ(ask("POST", "/v1/detokenize", R"({"tokens":[-1]})").status, 400);
  EXPECT_EQ(ask("POST", "/apply-template", fmt::format("{{{}}}", kUser)).status, 200);
  EXPECT_EQ(ask("POST", "/v1/messages/count_tokens", fmt::format("{{{}}}", kUser)).status, 200);
  engine_->set_ready(false);
  ASSERT_TRUE(until([this] { return get("/health").status == 503; }));
  for (const char* path : {"/health", "/v1/health", "/ready"}) EXPECT_EQ(ask("GET", path).status, 503);
}

TEST_F(OpenApiTest, AnswersAreAsDescribedWholeAndStreamed) {
  start();
  const std::string chat_tools =
      R"(,"tools":[{"type":"function","function":{"name":"f"}}],"logprobs":true,"top_logprobs":2,"return_reuse":true)";
  const std::string message_tools = R"(,"tools":[{"name":"f","input_schema":{"type":"object"}}])";
  const std::string response_tools =
      R"(,"tools":[{"type":"custom","name":"f"},{"type":"web_search"}],"top_logprobs":2,"include":["reasoning.encrypted_content"])";
  for (const char* script : {"A violin is a small stringed instrument.", kCalls}) {
    engine_->set_script({.text = script});
    for (const char* stream : {"", R"(,"stream":true)", R"(,"stream":true,"return_progress":true)"}) {
      ask("POST", "/v1/chat/completions", fmt::format("{{{}{}{}}}", kUser, chat_tools, stream));
      ask("POST", "/v1/chat/completions", fmt::format(R"({{{}{},"max_tokens":2}})", kUser, stream));
      ask("POST", "/v1/completions", fmt::format(R"({{"prompt":["A","B"],"logprobs":2{}}})", stream));
      ask("POST", "/v1/messages", fmt::format(R"({{{},"max_tokens":64{}{}}})", kUser, message_tools, stream));
      ask("POST", "/v1/responses", fmt::format(R"({{"input":"hi"{}{}}})", response_tools, stream));
      ask("POST", "/v1/responses", fmt::format(R"({{"input":"hi","max_output_tokens":2{}}})", stream));
    }
  }
  RawResponse usage =
      ask("POST", "/v1/chat/completions",
          fmt::format(R"({{{},"stream":true,"stream_options":{{"include_usage":true}}}})", kUser));
  EXPECT_NE(usage.body.find("total_tokens"), std::string::npos);
}

TEST_F(OpenApiTest, StoredResponsesAreAsDescribed) {
  start();
  const value made = json(ask("POST", "/v1/responses", R"({"input":"hi"})"));
  const std::string id(made.at("id").as_string());
  EXPECT_EQ(ask("GET", "/v1/responses/{response_id}", "", id).status, 200);
  EXPECT_EQ(ask("GET", "/v1/responses/{response_id}/input_items", "", id + "/input_items").status, 200);
  EXPECT_EQ(ask("GET", "/v1/responses/{response_id}/input_items", "", id + "/input_items?limit=0").status,
            400);
  EXPECT_EQ(ask("POST", "/v1/responses/{response_id}/cancel", "", id + "/cancel").status, 400);
  EXPECT_EQ(ask("DELETE", "/v1/responses/{response_id}", "", id).status, 200);
  EXPECT_EQ(ask("DELETE", "/v1/responses/{response_id}", "", id).status, 404);
  EXPECT_EQ(ask("GET", "/v1/responses/{response_id}", "", id).status, 404);
}

TEST_F(OpenApiTest, ErrorsAreAsDescribed) {
  config::Secrets keys;
  keys.list.push_back(config::hash_secret("key"));
  settings_.gateway_api_keys.set(keys);
  settings_.gateway_body_bytes_max.set(2000);
  start();
  const std::string key = "x-api-key: key\r\n";
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
                           "/v1/messages/count_tokens", "/tokenize", "/detokenize", "/apply-template"}) {
    EXPECT_EQ(ask("POST", path, "{}").status, 401) << path;
    EXPECT_EQ(ask("POST", path, "{}", "", key).status, 400) << path;
    EXPECT_EQ(ask("POST", path, "[", "", key).status, 400) << path;
    EXPECT_EQ(ask("POST", path, "{}", "", key + "Origin: https://elsewhere.example\r\n").status, 403) << path;
    EXPECT_EQ(ask("POST", path, "{}", "", key + "Content-Encoding: gzip\r\n").status, 415) << path;
    EXPECT_EQ(ask("POST", path, std::string(3000, ' '), "", key).status, 413) << path;
  }
  for (const char* path : {"/metrics", "/props", "/slots", "/v1/models", "/openapi.json", "/"})
    EXPECT_EQ(ask("GET", path).status, 401) << path;
  EXPECT_EQ(ask("GET", "/v1/responses/{response_id}", "", "resp_1").status, 401);
  EXPECT_EQ(ask("DELETE", "/v1/responses/{response_id}", "", "resp_1").status, 401);
}

TEST_F(OpenApiTest, FailuresOfTheEngineAreAsDescribed) {
  engine_->set_script({.fails_after = 2});
  start();
  EXPECT_EQ(ask("POST", "/v1/chat/completions", fmt::format("{{{}}}", kUser)).status, 500);
  EXPECT_EQ(ask("POST", "/v1/messages", fmt::format(R"({{{},"max_tokens":9}})", kUser)).status, 500);
  for (const char* body : {R"({"input":"hi"})", R"({"input":"hi","stream":true})"})
    ask("POST", "/v1/responses", body);
  ask("POST", "/v1/messages", fmt::format(R"({{{},"max_tokens":9,"stream":true}})", kUser));
  ask("POST", "/v1/chat/completions", fmt::format(R"({{{},"stream":true}})", kUser));
}

}  // namespace
}  // namespace strata::gateway
