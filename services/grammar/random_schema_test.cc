// Random schemas, and random walks through their masks: whatever comes out must be accepted by a validator
// that was written separately (schema_checker.h).
#include <gtest/gtest.h>

#include <random>

#include "services/gguf/gguf_file.h"
#include "services/grammar/json_schema.h"
#include "services/grammar/schema_checker.h"
#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

class RandomSchema {
 public:
  explicit RandomSchema(uint32_t seed) : random_(seed) {}
  value make() {
    value schema = any(3);
    if (!schema.is_object()) schema = object{{"items", schema}};
    schema.get_object()["$defs"] = object{{"shared", any(1)}};
    return schema;
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  value any(int depth) {
    switch (below(depth == 0 ? 7 : 13)) {
      case 0:
        return object{{"type", "boolean"}};
      case 1:
        return object{{"enum", array{"red", "gr\"een", 3, nullptr, -1.5}}};
      case 2: {
        const int low = static_cast<int>(below(200)) - 100;
        return object{{"type", "integer"}, {"minimum", low}, {"maximum", low + static_cast<int>(below(300))}};
      }
      case 3: {
        const uint32_t low = below(5);
        return object{{"type", "string"}, {"minLength", low}, {"maxLength", low + below(30)}};
      }
      case 4: {
        const char* patterns[] = {"^[a-z]{2,8}$", "^\\d{3}-[A-Z]+$", "x", "^(ab|c)*d?$", "^[a-c\"]{1,9}$"};
        return object{{"type", "string"}, {"pattern", patterns[below(5)]}};
      }
      case 5: {
        const char* formats[] = {"date", "time", "date-time", "uuid", "email", "ipv4"};
        return object{{"type", "string"}, {"format", formats[below(6)]}};
      }
      case 6:
        return object{{"type", "number"},
                      {"exclusiveMinimum", -static_cast<int>(below(20))},
                      {"maximum", 1 + below(20)}};
      case 7:
      case 8:
        return object_schema(depth);
      case 9: {
        const uint32_t low = below(3);
        return object{
            {"type", "array"}, {"items", any(depth - 1)}, {"minItems", low}, {"maxItems", low + below(4)}};
      }
      case 10:
        return object{{"prefixItems", array{any(depth - 1), any(depth - 1)}},
                      {"items", below(2) == 0},
                      {"minItems", below(3)}};
      case 11:
        return object{{below(2) == 0 ? "anyOf" : "oneOf", array{any(depth - 1), any(depth - 1)}}};
      default:
        return object{{"$ref", "#/$defs/shared"}};
    }
  }

  value object_schema(int depth) {
    object properties;
    array required;
    const uint32_t count = below(5);
    for (uint32_t i = 0; i < count; ++i) {
      const std::string name = fmt::format("{}{}", below(3) == 0 ? "na\"me" : "name", i);
      properties[name] = any(depth - 1);
      if (below(2) == 0) required.emplace_back(name);
    }
    object schema{{"type", "object"}, {"properties", properties}, {"required", required}};
    if (below(3) == 0) schema["additionalProperties"] = any(0);
    return schema;
  }

  std::mt19937 random_;
};

std::shared_ptr<const Vocabulary> demo_vocabulary() {
  static const std::shared_ptr<const Vocabulary> kVocabulary = [] {
    const auto file = gguf::GgufFile::open(STRATA_SOURCE_DIR "/models/strata-demo.gguf");
    return *Vocabulary::from_tokenizer(*tokenizer::Tokenizer::from_gguf(*file));
  }();
  return kVocabulary;
}

// Random tokens, with a leaning towards those that close something, so that texts end.
std::string walk(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random, bool check_masks) {
  const Vocabulary& vocabulary = grammar->vocabulary();
  Matcher matcher(grammar);
  std::string text;
  for (int step = 0; step < 4000; ++step) {
    const std::set<int32_t> tokens = allowed(matcher);
    EXPECT_FALSE(tokens.empty()) << "stuck after " << text;
    if (tokens.empty()) return "";
    if (check_masks && step < 25) {
      EXPECT_EQ(tokens, accepted_one_by_one(matcher)) << "after " << text;
    }
    std::vector<int32_t> closing;
    for (const int32_t token : tokens) {
      const std::string_view bytes = vocabulary.bytes(token);
      if (bytes.empty() || bytes.find_first_of("\"}]") != std::string_view::npos) closing.push_back(token);
    }
    int32_t chosen = 0;
    if (!closing.empty() && random() % 3 == 0) {
      chosen = closing[random() % closing.size()];
    } else {
      auto at = tokens.begin();
      std::advance(at, random() % tokens.size());
      chosen = *at;
    }
    EXPECT_TRUE(matcher.accept(chosen)) << "after " << text;
    if (matcher.is_ended()) return text;
    text += vocabulary.bytes(chosen);
  }
  return "";
}

TEST(RandomSchemas, WalksThroughMasksGiveValidJson) {
  int compiled_count = 0, finished = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const value schema = RandomSchema(seed).make();
    const auto rules = rules_of_schema(boost::json::serialize(schema));
    ASSERT_TRUE(rules.has_value()) << rules.error().message() << "\n" << schema;
    const auto grammar = Grammar::compile(*rules, demo_vocabulary());
    if (!grammar) {  // "shared" may be made of itself alone
      EXPECT_EQ(grammar.error().code(), Code::kInvalidArgument) << grammar.error().message();
      continue;
    }
    ++compiled_count;
    std::mt19937 random(seed);
    for (int i = 0; i < 3; ++i) {
      const std::string text = walk(*grammar, random, i == 0 && seed % 10 == 0);
      if (text.empty()) continue;
      boost::json::error_code code;
      boost::json::parse_options options;
      options.max_depth = 1000;
      const value parsed = boost::json::parse(text, code, {}, options);
      ASSERT_FALSE(code) << "seed " << seed << " not JSON: " << text << "\n" << schema;
      ASSERT_TRUE(SchemaChecker(schema).accepts(parsed)) << "seed " << seed << "\n" << text << "\n" << schema;
      ++finished;
    }
  }
  EXPECT_GT(compiled_count, 120);
  EXPECT_GT(finished, 300);
}

TEST(RandomSchemas, AnyObjectIsAlwaysJson) {
  const auto grammar = compiled(rules_of_any_object(), demo_vocabulary());
  std::mt19937 random(1);
  int finished = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string text = walk(grammar, random, i == 0);
    if (text.empty()) continue;
    boost::json::error_code code;
    boost::json::parse_options options;
    options.max_depth = 1000;
    const value parsed = boost::json::parse(text, code, {}, options);
    ASSERT_FALSE(code) << text;
    EXPECT_TRUE(parsed.is_object());
    ++finished;
  }
  EXPECT_GT(finished, 20);
}

}  // namespace
}  // namespace strata::grammar
