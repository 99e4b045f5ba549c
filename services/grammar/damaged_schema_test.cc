// Schemas with pieces cut, doubled and exchanged: whatever comes out is compiled or refused with a message,
// and what is compiled can be walked.
#include <gtest/gtest.h>

#include <random>

#include "services/grammar/json_schema.h"
#include "services/grammar/test_support.h"
#include "services/grammar/tool_calls.h"

namespace strata::grammar {
namespace {

constexpr std::string_view kSchema =
    R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 70},
 "b": {"type": ["string", "null"], "minLength": 1, "maxLength": 20}, 
 "c": {"pattern": "^[a-f]{2,5}(x|y)?\\d$"}, "d": {"format": "date"},
 "e": {"anyOf": [{"$ref": "#/$defs/n"}, {"enum": ["x", 1, null]}]}, 
 "f": {"items": {"type": "number"}, "minItems": 1, "maxItems": 4}},
 "required": ["a", "e"], "additionalProperties": false,
 "$defs": {"n": {"allOf": [{"type": "array"}, {"prefixItems": [true, {"const": 5}]}]}}})";

std::string damaged(std::mt19937& random) {
  std::string text(kSchema);
  for (uint32_t cuts = 1 + random() % 3; cuts-- > 0 && !text.empty();) {
    const std::size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text.erase(at, 1 + random() % 6);
        break;
      case 1:
        text.insert(at, kSchema.substr(random() % kSchema.size(), 1 + random() % 12));
        break;
      case 2:
        text[at] = static_cast<char>("0123456789{}[]\",:-x\\"[random() % 20]);
        break;
      default: {  // a word for another: still JSON, no longer what it was
        const char* words[] = {"integer", "string", "minimum", "maximum", "items",
                               "enum",    "anyOf",  "true",    "pattern", "5"};
        const std::string_view from = words[random() % 10], to = words[random() % 10];
        if (const std::size_t found = text.find(from, at); found != std::string::npos)
          text.replace(found, from.size(), to);
      }
    }
  }
  return text;
}

TEST(DamagedSchemas, AreCompiledOrRefused) {
  std::mt19937 random(3);
  int compiled_count = 0;
  for (int i = 0; i < 2500; ++i) {
    const std::string text = damaged(random);
    const auto rules = rules_of_schema(text);
    if (!rules) {
      EXPECT_NE(rules.error().message().find("schema"), std::string::npos) << text;
      continue;
    }
    const auto grammar = Grammar::compile(*rules, byte_vocabulary());
    if (!grammar) {
      EXPECT_FALSE(grammar.error().message().empty()) << text;
      continue;
    }
    ++compiled_count;
    Matcher matcher(*grammar);
    for (int step = 0; step < 12 && !matcher.is_ended(); ++step) {
      const std::set<int32_t> tokens = allowed(matcher);
      ASSERT_FALSE(tokens.empty()) << text;
      auto chosen = tokens.begin();
      std::advance(chosen, random() % tokens.size());
      ASSERT_TRUE(matcher.accept(*chosen)) << text;
    }
  }
  EXPECT_GT(compiled_count, 150) << "the damage is too heavy to test anything";
}

TEST(DamagedSchemas, OfToolsAreCompiledOrRefused) {
  std::mt19937 random(4);
  int compiled_count = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<Tool> tools = {{"first", damaged(random)}, {"second", ""}};
    const ToolFormat format = i % 2 == 0 ? ToolFormat::kJson : ToolFormat::kParameters;
    const auto lenient = rules_of_tools(tools, {.format = format});
    tools[0].strict = true;
    const auto strict = rules_of_tools(tools, {.format = format});
    ASSERT_TRUE(lenient.has_value()) << tools[0].parameters;
    EXPECT_EQ(lenient->warnings.size(), strict ? 0U : 1U);
    const auto grammar = Grammar::compile(lenient->rules, byte_vocabulary());
    ASSERT_TRUE(grammar.has_value()) << grammar.error().message();
    compiled_count += strict ? 1 : 0;
  }
  EXPECT_GT(compiled_count, 10);
}

}  // namespace
}  // namespace strata::grammar
