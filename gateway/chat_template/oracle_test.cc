// The engine against jinja2, byte by byte. All cases of a run go through one Python process
// (tests/oracle/jinja_oracle.py).

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>

#include "gateway/chat_template/chat_template.h"
#include "services/gguf/gguf_file.h"
#include "tests/support/test_data.h"

namespace strata::chat_template {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;
using strata::tests::read_text;

const fs::path kSource = STRATA_SOURCE_DIR;
const fs::path kTestData = kSource / "gateway" / "chat_template" / "testdata";

struct Case {
  std::string name;
  std::string source;
  json::object variables;
};

struct Answer {
  std::optional<std::string> text;  // nullopt: an error
  std::string error;
};

// What the oracle answers, in order; nullopt with the reason when there is no oracle.
std::optional<std::vector<Answer>> ask_oracle(const std::vector<Case>& cases, std::string& reason) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("strata-oracle-{}", ::getpid());
  fs::create_directories(folder);
  {
    std::ofstream in(folder / "in");
    for (const Case& item : cases)
      in << json::serialize(json::object{{"template", item.source}, {"variables", item.variables}}) << '\n';
  }
  const std::string command =
      fmt::format("python3 '{}' < '{}' > '{}'", (kSource / "tests/oracle/jinja_oracle.py").string(),
                  (folder / "in").string(), (folder / "out").string());
  const int status = std::system(command.c_str());
  const std::string out = read_text(folder / "out");
  fs::remove_all(folder);
  if (status != 0) {
    reason = out.empty() ? "python3 does not run" : out;
    return std::nullopt;
  }
  std::vector<Answer> answers;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const json::object answer = json::parse(line).as_object();
    if (const auto* text = answer.if_contains("text")) {
      answers.push_back({std::string(text->as_string()), {}});
    } else {
      answers.push_back({std::nullopt, std::string(answer.at("error").as_string())});
    }
  }
  EXPECT_EQ(answers.size(), cases.size());
  return answers;
}

Answer render(const Case& item) {
  RenderInput input;
  for (const auto& member : item.variables) {
    if (member.key() == "messages") {
      input.messages = member.value();
    } else if (member.key() == "tools") {
      input.tools = member.value();
    } else if (member.key() == "add_generation_prompt") {
      input.add_generation_prompt = member.value().as_bool();
    } else {
      input.request_variables[member.key()] = member.value();
    }
  }
  const auto parsed = ChatTemplate::parse(item.source);
  if (!parsed) return {std::nullopt, parsed.error().message()};
  const auto text = parsed->render(input);
  if (!text) return {std::nullopt, text.error().message()};
  return {text->text(), {}};
}

void expect_as_the_oracle(const std::vector<Case>& cases) {
  ASSERT_FALSE(cases.empty());
  std::string reason;
  const auto answers = ask_oracle(cases, reason);
  if (!answers) GTEST_SKIP() << reason;
  for (std::size_t i = 0; i < cases.size() && i < answers->size(); ++i) {
    const Answer ours = render(cases[i]);
    const Answer& theirs = (*answers)[i];
    EXPECT_EQ(ours.text, theirs.text)
        << cases[i].name << "\n"
        << cases[i].source.substr(0, 300) << "\nours: " << ours.error << "\ntheirs: " << theirs.error;
  }
}

// What apply_chat_template passes for every conversation.
json::object complete(json::object variables) {
  if (!variables.contains("tools")) variables["tools"] = nullptr;
  if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = true;
  return variables;
}

std::vector<Case> conversations_with(const std::string& name, const std::string& source) {
  std::vector<Case> cases;
  const json::value conversations = json::parse(read_text(kTestData / "conversations.json"));
  for (const json::value& conversation : conversations.as_array()) {
    cases.push_back(
        {fmt::format("{}, conversation {}", name, cases.size()), source, complete(conversation.as_object())});
  }
  return cases;
}

json::object feature_variables() {
  const json::value conversations = json::parse(read_text(kTestData / "conversations.json"));
  json::object variables = complete(conversations.at(8).as_object());
  variables["n"] = 7;
  variables["f"] = 2.5;
  variables["whole"] = 3.0;
  variables["big"] = 18446744073709551615u;
  variables["s"] = "Hello, World";
  variables["u"] = "naïve ÉCOLE 日本語 ñandú";
  variables["list"] = {1, 2, 3, 4, 5};
  variables["items"] = {{"a", {{"b", "deep"}}}, {"list", {1, "two", nullptr, true, 1.5}}};
  return variables;
}

std::vector<Case> feature_cases() {
  std::vector<Case> cases;
  std::istringstream lines(read_text(kTestData / "features.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("=== ")) {
      cases.push_back({line.substr(4), "", feature_variables()});
    } else {
      cases.back().source += line;
      cases.back().source += '\n';
    }
  }
  return cases;
}

TEST(OracleTest, EveryFeature) {
  const std::vector<Case> cases = feature_cases();
  ASSERT_GT(cases.size(), 80u);
  for (const Case& item : cases) {  // a case is of the kind that its name says, whatever the oracle thinks
    EXPECT_EQ(!render(item).text.has_value(), item.name.starts_with("error: "))
        << item.name << ": " << render(item).error;
  }
  expect_as_the_oracle(cases);
}

TEST(OracleTest, TheDemoModelsTemplate) {
  auto file = gguf::GgufFile::open(strata::tests::models_golden_model().string());
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const auto source = file->get_string("tokenizer.chat_template");
  ASSERT_TRUE(source.has_value()) << source.error().message();
  expect_as_the_oracle(conversations_with("demo model", std::string(*source)));
}

TEST(OracleTest, TheTemplateThatTheDemoModelIsTrainedWith) {
  const fs::path path = kSource / "models" / "train" / "chat_template.jinja";
  expect_as_the_oracle(conversations_with("training", read_text(path)));
}

TEST(OracleTest, AThinkingTemplateWithTools) {
  expect_as_the_oracle(conversations_with("thinking", read_text(kTestData / "thinking_tools.jinja")));
}

TEST(OracleTest, TemplatesOfReleasedModels) {
  const char* folder = std::getenv("STRATA_QWEN_TEMPLATES");
  if (folder == nullptr || *folder == '\0')
    GTEST_SKIP() << "STRATA_QWEN_TEMPLATES names no folder with *.jinja files";
  std::vector<Case> cases;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    for (Case& item : conversations_with(entry.path().filename().string(), read_text(entry.path())))
      cases.push_back(std::move(item));
  }
  expect_as_the_oracle(cases);
}

// Random expressions of a small grammar: what they give, or that they fail, must agree.
class ExpressionMaker {
 public:
  explicit ExpressionMaker(uint32_t seed) : random_(seed) {}

  std::string make(int depth) {
    if (depth == 0 || draw(6) == 0) return pick(kAtoms);
    switch (draw(9)) {
      case 0:
        return fmt::format("({} {} {})", make(depth - 1), pick(kOperators), make(depth - 1));
      case 1:
        return fmt::format("({} {} {})", make(depth - 1), pick(kOperators), make(depth - 1));
      case 2:
        return fmt::format("({} | {})", make(depth - 1), pick(kFilters));
      case 3:
        return fmt::format("({} is {})", make(depth - 1), pick(kTests));
      case 4:
        return fmt::format("({}).{}", make(depth - 1), pick(kMethods));
      case 5:
        // jinja2 folds constants by other rules than it runs: only strings and lists may meet a slice.
        return draw(2) == 0 ? fmt::format("({})[{}]", make(depth - 1), pick(kPositions))
                            : fmt::format("({} | {})[{}]", make(depth - 1), draw(2) == 0 ? "string" : "list",
                                          pick(kSlices));
      case 6:
        return fmt::format("({} if {} else {})", make(depth - 1), make(depth - 1), make(depth - 1));
      case 7:
        return fmt::format("[{}, {}]", make(depth - 1), make(depth - 1));
      default:
        return fmt::format("{{'a': {}, 'b': {}}}", make(depth - 1), make(depth - 1));
    }
  }

 private:
  uint32_t draw(std::size_t below) { return static_cast<uint32_t>(random_() % below); }
  template <std::size_t N>
  std::string pick(const std::array<const char*, N>& from) {
    return from[draw(N)];
  }

  static constexpr std::array<const char*, 22> kAtoms = {
      "1",  "0",    "-2",    "2.5",  "'a'",  "'b c '",  "''",     "s",        "u",     "n",   "f",
      "[]", "list", "items", "true", "none", "missing", "(1, 2)", "messages", "'<é>'", "'3'", "'x,y,,z'"};
  static constexpr std::array<const char*, 16> kOperators = {
      "+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "in", "and", "not in", "or", "<="};
  static constexpr std::array<const char*, 30> kFilters = {"upper",
                                                           "lower",
                                                           "title",
                                                           "trim",
                                                           "length",
                                                           "list",
                                                           "join('-')",
                                                           "first",
                                                           "last",
                                                           "string",
                                                           "int",
                                                           "float",
                                                           "abs",
                                                           "round(1)",
                                                           "tojson",
                                                           "reverse | list",
                                                           "default('q')",
                                                           "sort",
                                                           "unique | list",
                                                           "min",
                                                           "max",
                                                           "sum",
                                                           "capitalize",
                                                           "replace('a', 'zz')",
                                                           "e",
                                                           "indent(2)",
                                                           "map('string') | list",
                                                           "select('defined') | list",
                                                           "items | list",
                                                           "dictsort"};
  static constexpr std::array<const char*, 12> kTests = {"defined",  "string",      "number",  "mapping",
                                                         "iterable", "sequence",    "none",    "odd",
                                                         "eq 1",     "in [1, 'a']", "boolean", "integer"};
  static constexpr std::array<const char*, 16> kMethods = {
      "upper()",         "split()",          "split(',')", "strip()",
      "startswith('a')", "replace('a', '')", "title()",    "find('b')",
      "get('a')",        "items() | list",   "a",          "count('a')",
      "isalpha()",       "rsplit(none, 1)",  "zfill(6)",   "center(7, '*')"};
  static constexpr std::array<const char*, 4> kPositions = {"0", "-1", "'a'", "9"};
  static constexpr std::array<const char*, 7> kSlices = {
      "1:", "::-1", ":2", "-2:", "1:-1:2", ":-9:-1", "9::-2"};

  std::mt19937 random_;
};

TEST(OracleTest, RandomExpressions) {
  std::vector<Case> cases;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    const std::string expression = ExpressionMaker(seed).make(1 + static_cast<int>(seed % 4));
    cases.push_back(
        {fmt::format("seed {}", seed), fmt::format("{{{{ {} }}}}", expression), feature_variables()});
  }
  expect_as_the_oracle(cases);
}

}  // namespace
}  // namespace strata::chat_template
