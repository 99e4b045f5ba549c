// How long a mask takes, on every step of generating texts under typical grammars, with a vocabulary of the
// size that released models have. Prints a table; method and figures: docs/grammar.md.
#include <fmt/format.h>

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "services/gguf/file_builder.h"
#include "services/grammar/bench_grammar.h"
#include "services/grammar/grammar.h"
#include "services/grammar/json_schema.h"
#include "services/grammar/matcher.h"
#include "services/grammar/tool_calls.h"
#include "services/synthetic/tokenizer_data.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::grammar {
namespace {

constexpr uint32_t kVocabulary = 248'320;
constexpr uint32_t kTokensPerText = 600;
constexpr uint32_t kTexts = 8;

// Processor time of this thread: what others do on the machine does not count.
struct Clock {
  using time_point = double;
  static time_point now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  }
};
double us_since(Clock::time_point begin) { return Clock::now() - begin; }

// The kinds of tokens that byte-level BPE over many languages has, in about the same shares: words with and
// without a space in front, other scripts (a third; some cut inside a character), punctuation glued to what
// surrounds it, white space, digits.
std::shared_ptr<const Vocabulary> synthetic_vocabulary() {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  std::set<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace(1, static_cast<char>(byte));
  const std::string_view punctuation = "\"{}[]():,.;'`<>/\\|=+-*&^%$#@!?_~";
  for (uint32_t n = 1; n <= 128; ++n) texts.insert(std::string(n, ' '));
  while (texts.size() < kVocabulary - 8) {
    std::string text;
    const uint32_t kind = below(100);
    if (kind < 58) {
      if (below(2) == 0) text += ' ';
      for (uint32_t n = 2 + below(10); n-- > 0;)
        text += static_cast<char>((below(12) == 0 ? 'A' : 'a') + below(26));
    } else if (kind < 90) {
      for (uint32_t n = 1 + below(4); n-- > 0;) {
        const uint32_t c = below(3) == 0 ? 0x400 + below(0x200) : 0x4E00 + below(0x4000);
        if (c < 0x800) {
          text += static_cast<char>(0xC0 | c >> 6);
        } else {
          text += static_cast<char>(0xE0 | c >> 12);
          text += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        }
        text += static_cast<char>(0x80 | (c & 0x3F));
      }
      if (below(20) == 0) text.pop_back();
    } else if (kind < 97) {
      for (uint32_t n = 1 + below(4); n-- > 0;)
        text += punctuation[below(static_cast<uint32_t>(punctuation.size()))];
      if (below(3) == 0) text += below(2) == 0 ? "\n" : " ";
      if (below(3) == 0) text += static_cast<char>('a' + below(26));
    } else {
      for (uint32_t n = 1 + below(3); n-- > 0;) text += static_cast<char>('0' + below(10));
    }
    texts.insert(text);
  }
  std::vector<VocabularyToken> tokens;
  for (const std::string& text : texts) tokens.push_back({text});
  std::shuffle(tokens.begin(), tokens.end(), random);
  for (const char* special : {"<|im_end|>", "<tool_call>", "</tool_call>"}) {
    tokens.push_back({special, VocabularyToken::Kind::kSpecial});
  }
  tokens.resize(kVocabulary, {"", VocabularyToken::Kind::kUnused});
  const auto end = static_cast<int32_t>(texts.size());
  return *Vocabulary::create(std::move(tokens), {end});
}

// That of models that `strata bench --synthetic` makes: bytes and words, nearly all of which fit a string.
std::shared_ptr<const Vocabulary> vocabulary_of_synthetic_models() {
  gguf::FileBuilder file;
  synthetic::add_tokenizer(file, kVocabulary);
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("grammar_bench.{}.gguf", getpid());
  std::ofstream(path, std::ios::binary) << file.build();
  const auto read = gguf::GgufFile::open(path.string());
  const auto tokenizer = tokenizer::Tokenizer::from_gguf(read.value());
  std::filesystem::remove(path);
  return *Vocabulary::from_tokenizer(tokenizer.value());
}

struct Times {
  std::vector<double> us;
  double at(double share) {
    std::sort(us.begin(), us.end());
    return us.empty() ? 0
                      : us[std::min(us.size() - 1,
                                    static_cast<std::size_t>(share * static_cast<double>(us.size())))];
  }
};

// Tokens that close something: without a leaning towards them texts would stay inside their first string.
std::vector<uint32_t> closing_tokens(const Vocabulary& vocabulary) {
  std::vector<uint32_t> mask(vocabulary.mask_words());
  for (uint32_t t = 0; t < vocabulary.size(); ++t) {
    const bool closes =
        vocabulary.bytes(static_cast<int32_t>(t)).find_first_of("\"}]") != std::string_view::npos;
    if (closes) mask[t / 32] |= 1U << t % 32;
  }
  return mask;
}

// A token of the mask, picked evenly; -1 if there is none.
int32_t pick(std::span<const uint32_t> mask, std::mt19937& random) {
  uint32_t count = 0;
  for (const uint32_t word : mask) count += static_cast<uint32_t>(std::popcount(word));
  if (count == 0) return -1;
  uint32_t left = static_cast<uint32_t>(random() % count);
  for (std::size_t w = 0; w < mask.size(); ++w) {
    const auto here = static_cast<uint32_t>(std::popcount(mask[w]));
    if (left >= here) {
      left -= here;
      continue;
    }
    uint32_t word = mask[w];
    for (; left > 0; --left) word &= word - 1;
    return static_cast<int32_t>(w * 32) + std::countr_zero(word);
  }
  return -1;
}

struct Walk {
  Times masks, accepts, rollbacks;  // quick ones: what the window loop waits for
  Times late;                       // what is left to another thread
};

double percent_late(const Walk& walk) {
  const auto all = static_cast<double>(walk.masks.us.size() + walk.accepts.us.size());
  return 100 * static_cast<double>(walk.late.us.size()) / all;
}

// A call as the window loop makes it, and, where it gives up, as another thread does.
template <class Call>
auto timed(Matcher& matcher, Call call, Times& quick, Times& late) {
  matcher.set_effort(Matcher::Effort::kQuick);
  Clock::time_point at = Clock::now();
  auto result = call();
  quick.us.push_back(us_since(at));
  if (!matcher.gave_up()) return result;
  matcher.set_effort(Matcher::Effort::kPatient);
  at = Clock::now();
  result = call();
  late.us.push_back(us_since(at));
  return result;
}

// Random texts of the grammar, a token at a time.
Walk walk(const std::shared_ptr<const Grammar>& grammar, const Vocabulary& vocabulary) {
  Walk out;
  std::mt19937 random(7);
  std::vector<uint32_t> mask(vocabulary.mask_words()), closing(vocabulary.mask_words());
  const std::vector<uint32_t> closers = closing_tokens(vocabulary);
  for (uint32_t n = 0; n < kTexts; ++n) {
    Matcher matcher(grammar);
    for (uint32_t step = 0; step < kTokensPerText; ++step) {
      if (!timed(matcher, [&] { return matcher.fill_mask(mask); }, out.masks, out.late)) break;
      for (std::size_t w = 0; w < mask.size(); ++w) closing[w] = mask[w] & closers[w];
      const int32_t closer = random() % 8 == 0 ? pick(closing, random) : -1;
      const int32_t token = closer >= 0 ? closer : pick(mask, random);
      if (token < 0 || vocabulary.is_end_of_generation(token)) break;
      if (!timed(matcher, [&] { return matcher.accept(token); }, out.accepts, out.late)) break;
      const Clock::time_point at = Clock::now();
      matcher.rollback(1);
      out.rollbacks.us.push_back(us_since(at));
      matcher.accept(token);
    }
  }
  return out;
}

void measure(std::string_view name, const std::shared_ptr<const Vocabulary>& vocabulary,
             const std::string& text) {
  const Clock::time_point begin = Clock::now();
  const auto grammar = Grammar::from_gbnf(text, vocabulary);
  const double compile_us = us_since(begin);
  if (!grammar) {
    fmt::print("{:<22} {}\n", name, grammar.error().message());
    return;
  }
  const Clock::time_point prepare = Clock::now();
  (*grammar)->prepare(std::chrono::hours(1));
  const double prepare_us = us_since(prepare);

  // The same texts twice: the first time with masks that are made when they are needed.
  const auto unprepared = Grammar::from_gbnf(text, vocabulary);
  Walk cold = walk(*unprepared, *vocabulary);
  Walk walked = walk(*grammar, *vocabulary);
  fmt::print(
      "{:<22} {:>7} {:>10.2f} {:>10.1f} {:>8.1f} {:>7} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.2f} {:>8.2f} "
      "{:>8.2f} {:>7.2f} {:>9.1f} {:>7.2f} {:>9.1f}\n",
      name, (*grammar)->automaton().state_count(), compile_us / 1000, prepare_us / 1000,
      static_cast<double>((*grammar)->memory_bytes()) / (1 << 20), walked.masks.us.size(),
      walked.masks.at(0.5), walked.masks.at(0.99), walked.masks.at(1), walked.accepts.at(0.99),
      walked.accepts.at(1), walked.rollbacks.at(0.99), percent_late(walked), walked.late.at(1),
      percent_late(cold), cold.late.at(1));
  std::fflush(stdout);
}

void measure(std::string_view name, const std::shared_ptr<const Vocabulary>& vocabulary, const Rules& rules) {
  measure(name, vocabulary, rules.to_gbnf().value());
}

Rules schema(std::string_view text) {
  auto rules = rules_of_schema(text);
  if (!rules) {
    fmt::print("{}\n", rules.error().message());
    std::exit(1);
  }
  return std::move(*rules);
}

// A list of strings of 1,000 different values.
std::string enum_schema() {
  std::string values;
  for (int i = 0; i < 1000; ++i)
    fmt::format_to(std::back_inserter(values), "{}\"{}-{}\"", i == 0 ? "" : ",", "item", i * 7919 % 100003);
  return fmt::format(R"({{"type": "array", "minItems": 500, "items": {{"enum": [{}]}}}})", values);
}

// Three alternatives at each of `levels` levels.
std::string any_of_schema(int levels) {
  std::string inner = R"({"type": "string"})";
  for (int i = 0; i < levels; ++i) {
    const std::string with_a =
        fmt::format(R"({{"type": "object", "properties": {{"a{0}": {1}}}, "required": ["a{0}"]}})", i, inner);
    const std::string with_b = fmt::format(
        R"({{"type": "object", "properties": {{"b{0}": {1}, "n": {{"type": "number"}}}}, "required": ["b{0}", "n"]}})",
        i, inner);
    inner = fmt::format(R"({{"anyOf": [{}, {}, {{"type": "array", "items": {{"type": "integer"}}}}]}})",
                        with_a, with_b);
  }
  return fmt::format(R"({{"type": "array", "minItems": 500, "items": {}}})", inner);
}

// A record of many strings, each with a length of its own.
std::string lengths_schema(int count) {
  std::string properties, required;
  for (int i = 0; i < count; ++i) {
    fmt::format_to(std::back_inserter(properties), R"({}"p{}": {{"type": "string", "maxLength": {}}})",
                   i == 0 ? "" : ",", i, 100 + 37 * i);
    fmt::format_to(std::back_inserter(required), R"({}"p{}")", i == 0 ? "" : ",", i);
  }
  return fmt::format(R"({{"type": "object", "properties": {{{}}}, "required": [{}]}})", properties, required);
}

// Optional members may come in one order only, but any of them may be next.
std::string optional_schema(int count) {
  std::string properties;
  for (int i = 0; i < count; ++i)
    fmt::format_to(std::back_inserter(properties), R"({}"property_{}": {{"type": "string"}})",
                   i == 0 ? "" : ",", i);
  return fmt::format(
      R"({{"type": "array", "minItems": 500, "items": {{"type": "object", "properties": {{{}}}}}}})",
      properties);
}

// Sums of products, one to a line: after most tokens few others may come.
constexpr const char* kExpressions = R"gbnf(
root ::= (sum "\n")+
sum ::= product (sign product)*
product ::= atom (times atom)*
sign ::= blank [+-] blank
times ::= blank [*/%] blank
atom ::= name | number | "(" blank sum blank ")"
name ::= [a-z] [a-z0-9_]{0,31}
number ::= "0" | [1-9] [0-9]*
blank ::= " "*
)gbnf";

// A small language: names, keywords and texts begin alike, so tokens are part of several rules at once.
constexpr const char* kCode = R"gbnf(
root ::= (function gap)+
function ::= "fn " name "(" (parameter (", " parameter)*)? ")" (" -> " type)? block
parameter ::= name ": " type
type ::= "int" | "real" | "text" | "list<" type ">" | name
block ::= gap "{" gap (statement gap)* "}"
statement ::= "let " name " = " value ";" | name " = " value ";" | value ";" | branch | loop | "return " value ";" | note
branch ::= "if " value block (gap "else" (" " branch | block))?
loop ::= "while " value block | "for " name " in " value block
value ::= joined (" " ("and" | "or") " " joined)*
joined ::= compared (" " [+*/-] " " compared)*
compared ::= operand (" " ("<" | ">" | "<=" | ">=" | "==" | "!=") " " operand)?
operand ::= "not " operand | "-" operand | (name | number | text | "(" value ")" | "[" values? "]") access*
access ::= "." name | "(" values? ")" | "[" value "]"
values ::= value (", " value)*
name ::= [A-Za-z_] [A-Za-z0-9_]*
number ::= [0-9]+ ("." [0-9]+)?
text ::= "\"" ([^"\\\n] | "\\" [nt"\\])* "\""
note ::= "#" [^\n]* "\n"
gap ::= [ \t\n]*
)gbnf";

// Each letter may begin a word of its own or not: as many readings as there are ways to cut the text.
constexpr const char* kAmbiguous = R"gbnf(
root ::= item+
item ::= word | word word | "(" item+ ")"
word ::= [a-z]+ | [a-z]+ " "
)gbnf";

void run_hard(const std::shared_ptr<const Vocabulary>& vocabulary) {
  measure("enum of 1,000", vocabulary, schema(enum_schema()));
  measure("any of, 5 deep", vocabulary, schema(any_of_schema(5)));
  measure("pattern", vocabulary, schema(R"({"type": "array", "minItems": 500, "items": {"type": "string",
      "pattern": "^([A-Z][a-z]+)( [A-Z][a-z]+){0,5}, (19|20)\\d{2}-[0-1]\\d$"}})"));
  measure("unanchored pattern", vocabulary,
          schema(R"({"type": "array", "minItems": 500, "items": {"type": "string", "pattern": "ab.*c+d"}})"));
  measure(
      "pattern of ideographs", vocabulary,
      schema(
          R"({"type": "array", "minItems": 500, "items": {"type": "string", "pattern": "^[\u4e00-\u9fff]{1,40}$"}})"));
  measure("maxLength 100,000", vocabulary,
          schema(R"({"type": "string", "minLength": 3000, "maxLength": 100000})"));
  measure("40 lengths", vocabulary, schema(lengths_schema(40)));
  measure("100 optional members", vocabulary, schema(optional_schema(100)));
  measure("expressions", vocabulary, kExpressions);
  measure("code", vocabulary, kCode);
  measure("ambiguous words", vocabulary, kAmbiguous);
  measure("repeated options", vocabulary, "root ::= (\"a\"? \"b\"? [c-z]?){0,100000}");
  measure("nested repetitions", vocabulary, "root ::= (([a-z]{0,1000} \" \"){0,1000} \"\\n\"){0,1000}");
  measure("texts of many scripts", vocabulary,
          "root ::= ([\u0400-\u04FF]+ | [\u4E00-\u9FFF]+ | [^\\x00-\\x7F\u0400-\u04FF]+ | [ ,.])*");
  measure("nested brackets", vocabulary, "root ::= \"[\" (root | [^\\[\\]])* \"]\"");
}

void run() {
  Clock::time_point begin = Clock::now();
  const auto vocabulary = synthetic_vocabulary();
  fmt::print("vocabulary of {}: {:.0f} ms, tree {:.1f} MiB\n", vocabulary->size(), us_since(begin) / 1000,
             static_cast<double>(vocabulary->trie().memory_bytes()) / (1 << 20));
  fmt::print(
      "{:<22} {:>7} {:>10} {:>10} {:>8} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>9} {:>7} {:>9}\n",
      "grammar", "states", "compile ms", "masks ms", "MiB", "steps", "p50 us", "p99 us", "max us", "accept",
      "its max", "rollback", "late %", "max us", "new: %", "max us");
  measure("any JSON object", vocabulary, rules_of_any_object());
  measure("record", vocabulary,
          schema(R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer",
      "minimum": 0, "maximum": 150}, "email": {"type": "string", "format": "email"}, "tags": {"type": "array", "items": {"type":
      "string"}, "maxItems": 10}, "address": {"type": "object", "properties": {"street": {"type": "string"}, "zip": {"type":
      "string", "pattern": "^\\d{5}$"}}, "required": ["street", "zip"]}},
      "required": ["name", "age", "email", "tags", "address"]})"));
  measure("bounded strings", vocabulary,
          schema(R"({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string",
      "minLength": 3, "maxLength": 40}, "b": {"type": "string", "maxLength": 500}}, "required": ["a", "b"]},
      "minItems": 1000})"));
  measure("tree of itself", vocabulary,
          schema(R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"label": {"type":
      "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "required": ["label", "children"]}}})"));
  measure("any of three objects", vocabulary,
          schema(R"({"type": "array", "minItems": 1000, "items": {"anyOf": [{"type": "object", "properties":
      {"text": {"type": "string"}}, "required": ["text"]},
      {"type": "object", "properties": {"text": {"type": "string", "maxLength": 80},
      "n": {"type": "number"}}, "required": ["text", "n"]}, {"type": "object", "additionalProperties": {"type": "string"}}]}})"));
  const std::vector<Tool> tools = {
      {"get_weather", R"({"properties": {"city": {"type": "string"}}, "required": ["city"]})"},
      {"write_file", R"({"properties": {"path": {"type": "string"}, "content": {"type": "string"}},
                                    "required": ["path", "content"]})"}};
  measure("tools, auto", vocabulary, rules_of_tools(tools, {})->rules);
  measure("tools, required", vocabulary, rules_of_tools(tools, {.choice = ToolChoice::kRequired})->rules);
  measure("tools, parameters", vocabulary,
          rules_of_tools(tools, {.format = ToolFormat::kParameters, .choice = ToolChoice::kRequired})->rules);
  measure("strata bench", vocabulary, kBenchGrammar);
  run_hard(vocabulary);
  measure("strata bench, its model", vocabulary_of_synthetic_models(), kBenchGrammar);
}

}  // namespace
}  // namespace strata::grammar

int main() { strata::grammar::run(); }
