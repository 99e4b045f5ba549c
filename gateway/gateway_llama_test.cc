// What tools for llama.cpp's server look for: /tokenize, /detokenize, /slots, /props.

#include "gateway/api/json_text.h"
#include "gateway/generation/test_tokenizer.h"
#include "gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using testing::chat;
using testing::kChat;
using testing::RawClient;
using testing::RawResponse;

class LlamaTest : public testing::GatewayTest {
 protected:
  boost::json::array tokens(const std::string& fields) {
    RawResponse response = post("/tokenize", fmt::format("{{{}}}", fields));
    EXPECT_EQ(response.status, 200) << response.body;
    return json(response).at("tokens").as_array();
  }
  std::string text(const boost::json::array& ids) {
    return std::string(
        json(post("/detokenize", fmt::format(R"({{"tokens":{}}})", to_json(ids)))).at("content").as_string());
  }
};

TEST_F(LlamaTest, TextBecomesTokensAndTextAgain) {
  start();
  for (const char* content : {"A violin is \\u00e9\\ud83d\\ude00.", ""}) {
    const auto ids = tokens(fmt::format(R"("content":"{}")", content));
    EXPECT_EQ(text(ids), boost::json::parse(fmt::format("\"{}\"", content)).as_string().c_str());
  }
  EXPECT_EQ(tokens(R"("content":"A violin","add_special":true)"), tokens(R"("content":"A violin")"));
  EXPECT_EQ(post("/v1/tokenize", R"({"content":"A"})").body, post("/tokenize", R"({"content":"A"})").body);
  EXPECT_EQ(post("/v1/detokenize", R"({"tokens":[5]})").body, post("/detokenize", R"({"tokens":[5]})").body);
}

TEST_F(LlamaTest, SpecialTokensAreReadUnlessTheyAreText) {
  start();
  EXPECT_EQ(tokens(R"("content":"<|im_end|>")").size(), 1u);
  EXPECT_EQ(tokens(R"("content":"<|im_end|>","parse_special":true)").size(), 1u);
  const auto spelled = tokens(R"("content":"<|im_end|>","parse_special":false)");
  EXPECT_GT(spelled.size(), 1u);
  EXPECT_EQ(text(spelled), "<|im_end|>");
}

TEST_F(LlamaTest, TextsAndTokensMayBeMixed) {
  start();
  const auto id = tokens(R"("content":"<|im_end|>")").at(0);
  const auto mixed = tokens(fmt::format(R"("content":["A violin",{},"B"])", to_json(id)));
  EXPECT_EQ(text(mixed), "A violin<|im_end|>B");
  EXPECT_TRUE(tokens(R"("content":[])").empty());
}

TEST_F(LlamaTest, PiecesAreTextOrBytes) {
  start();
  std::string joined;
  bool bytes = false;
  for (const auto& token : tokens(R"("content":"A \ud83e\udee0 violin","with_pieces":true)")) {
    const auto& piece = token.at("piece");
    if (piece.is_string()) {
      joined += std::string_view(piece.as_string());
      continue;
    }
    bytes = true;
    for (const auto& byte : piece.as_array()) joined += static_cast<char>(byte.to_number<int>());
  }
  EXPECT_TRUE(bytes) << "this character is one token: take a rarer one";
  EXPECT_EQ(joined, "A \xf0\x9f\xab\xa0 violin");
}

TEST_F(LlamaTest, FaultsAreNamed) {
  start();
  for (const auto& [path, body, param] : std::vector<std::tuple<const char*, const char*, const char*>>{
           {"/tokenize", "{}", "content"},
           {"/tokenize", R"({"content":7})", "content"},
           {"/tokenize", R"({"content":[-1]})", "content"},
           {"/tokenize", R"({"content":[{}]})", "content"},
           {"/tokenize", R"({"content":"a","with_pieces":"yes"})", "with_pieces"},
           {"/tokenize", R"({"content":"a","parse_special":1})", "parse_special"},
           {"/tokenize", R"({"content":"a","add_special":1})", "add_special"},
           {"/detokenize", "{}", "tokens"},
           {"/detokenize", R"({"tokens":"a"})", "tokens"},
           {"/detokenize", R"({"tokens":[1.5]})", "tokens"},
           {"/detokenize", R"({"tokens":["a"]})", "tokens"},
           {"/detokenize", R"({"tokens":[99999999]})", "tokens"}}) {
    RawResponse response = post(path, body);
    EXPECT_EQ(response.status, 400) << path << body;
    EXPECT_EQ(json(response).at("error").at("param"), param) << path << body;
  }
  EXPECT_EQ(post("/tokenize", "{").status, 400);
  EXPECT_EQ(post("/detokenize", "[]").status, 400);
}

TEST_F(LlamaTest, SlotsSayWhatRunsAndKeepTheirPlace) {
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  engine_->set_sequences(2);
  start();
  const auto slots = [this] { return json(get("/slots")).as_array(); };
  ASSERT_TRUE(until([&] { return slots().size() == 2; }));
  for (const auto& slot : slots()) {
    EXPECT_EQ(slot.at("is_processing"), false);
    EXPECT_EQ(slot.at("id_task"), -1);
    EXPECT_FALSE(slot.as_object().contains("params"));
  }
  EXPECT_EQ(get("/slots?fail_on_no_slot=1").status, 200);
  RawClient first(port_), second(port_);
  first.request("POST", kChat, chat(R"(,"stream":true,"seed":7,"max_tokens":5000,"temperature":0.5)"));
  ASSERT_TRUE(first.read_until(testing::kFirstPieces));
  second.request("POST", kChat, chat(R"(,"stream":true)", "Secret words"));
  ASSERT_TRUE(second.read_until(testing::kFirstPieces));
  const auto busy = slots();
  EXPECT_EQ(busy.at(0).at("is_processing"), true);
  EXPECT_EQ(busy.at(0).at("params").at("seed"), 7);
  EXPECT_EQ(busy.at(0).at("params").at("temperature"), 0.5);
  EXPECT_EQ(busy.at(0).at("params").at("n_predict"), 5000);
  EXPECT_GT(busy.at(0).at("next_token").at("n_decoded").to_number<int>(), 0);
  EXPECT_EQ(busy.at(0).at("next_token").at("n_remain").to_number<int>() +
                busy.at(0).at("next_token").at("n_decoded").to_number<int>(),
            5000);
  EXPECT_EQ(busy.at(1).at("params").at("n_predict"), -1);
  EXPECT_GT(busy.at(1).at("n_prompt_tokens").to_number<int>(), 3);
  EXPECT_EQ(to_json(busy).find("Secret"), std::string::npos) << "no content";
  EXPECT_EQ(get("/slots?fail_on_no_slot=1").status, 503);
  const auto second_task = busy.at(1).at("id_task");
  first.close();
  ASSERT_TRUE(until([&] { return slots().at(0).at("is_processing") == false; }));
  EXPECT_EQ(slots().at(1).at("id_task"), second_task) << "it moved";
  RawClient third(port_);
  third.request("POST", kChat, chat(R"(,"stream":true)"));
  ASSERT_TRUE(third.read_until(testing::kFirstPieces));
  EXPECT_EQ(slots().at(1).at("id_task"), second_task);
  EXPECT_EQ(slots().at(0).at("is_processing"), true);
}

TEST_F(LlamaTest, PropsHaveWhatItsToolsLookFor) {
  start();
  auto props = json(get("/props")).as_object();
  EXPECT_EQ(props.at("total_slots"), props.at("sequences"));
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx"), props.at("context_length"));
  EXPECT_EQ(props.at("default_generation_settings").at("params").at("seed"), -1);
  EXPECT_EQ(props.at("model_path"), "strata-demo.gguf");
  EXPECT_NE(std::string(props.at("chat_template").as_string()).find("<|im_start|>"), std::string::npos);
  EXPECT_EQ(props.at("modalities").at("vision"), false);
}

}  // namespace
}  // namespace strata::gateway
