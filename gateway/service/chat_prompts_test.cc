#include "gateway/service/chat_prompts.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace strata::gateway {
namespace {

ApiResult<tokenizer::MarkedText> render(std::string_view source, const char* messages) {
  auto prompts = ChatPrompts::parse(source, "show_working", "template");
  EXPECT_TRUE(prompts) << prompts.error().message();
  ChatRequest request;
  request.messages.list = boost::json::parse(messages).as_array();
  return prompts->render(request);
}

TEST(ChatPromptsTest, RuleB7WhatATemplateRefusesIsAFaultOfTheRequestInTheTemplatesWords) {
  constexpr std::string_view kStrict =
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}{{ m.content }}{% endfor %}";
  ASSERT_TRUE(render(kStrict, R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])"));
  auto refused = render(kStrict, R"([{"role":"user","content":"q"},{"role":"user","content":"q"}])");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 400u);
  EXPECT_EQ(refused.error().code, "chat_template_error");
  EXPECT_EQ(refused.error().param, "messages");
  EXPECT_NE(refused.error().message.find("Roles must alternate user/assistant"), std::string::npos);
}

TEST(ChatPromptsTest, AFaultWithinATemplateIsA400Too) {
  auto refused = render("{{ messages[0].content + 7 }}", R"([{"role":"user","content":"q"}])");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 400u);
  EXPECT_EQ(refused.error().code, "chat_template_error");
}

}  // namespace
}  // namespace strata::gateway
