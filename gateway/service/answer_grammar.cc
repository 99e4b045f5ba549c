#include "gateway/service/answer_grammar.h"

#include <fmt/format.h>

#include <boost/json/object.hpp>

#include "gateway/api/json_text.h"
#include "gateway/generation/answer.h"
#include "gateway/generation/tool_call_reader.h"
#include "services/grammar/gbnf.h"
#include "services/grammar/json_schema.h"

namespace strata::gateway {

namespace {

using grammar::NodeId;
using grammar::Rules;

// Line ends that a model writes behind its thinking, before its answer.
constexpr uint32_t kNewlinesMax = 2;
constexpr std::size_t kCacheBytesMax = std::size_t{16} << 20;
// Of a message about a schema: its beginning says where, its end what; names in between may be long.
constexpr std::size_t kMessagePartMax = 160;

// Neither cuts a character nor repeats much of what a client wrote (rule I11).
std::string shortened(const std::string& text) {
  if (text.size() <= 2 * kMessagePartMax) return text;
  const auto is_inside = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  std::size_t head = kMessagePartMax, tail = text.size() - kMessagePartMax;
  while (head > 0 && is_inside(head)) --head;
  while (tail < text.size() && is_inside(tail)) ++tail;
  return text.substr(0, head) + "..." + text.substr(tail);
}

ApiError refused(const std::string& param, const Status& error) {
  return invalid_request(fmt::format("{}: {}", param, shortened(error.message())), param);
}

NodeId newlines(Rules& rules) { return rules.repeat(rules.bytes("\n"), 0, kNewlinesMax); }

// Thinking of any length between its marks.
NodeId own_thinking(Rules& rules) {
  const NodeId thought = rules.repeat(rules.chars(grammar::CodePoints::all()), 0, grammar::kUnbounded);
  return rules.sequence({rules.token(kThinkOpen), thought, rules.token(kThinkClose), newlines(rules)});
}

std::vector<grammar::Tool> tools_of(const Tools& tools) {
  std::vector<grammar::Tool> out;
  for (const auto& tool : tools.offered) {
    const boost::json::object& function = tool.at("function").get_object();
    const boost::json::value* parameters = function.if_contains("parameters");
    std::string name(function.at("name").get_string());
    const bool strict = tools.strict.contains(name);
    out.push_back({.name = std::move(name),
                   .parameters = parameters == nullptr || parameters->is_null() ? "" : to_json(*parameters),
                   .strict = strict});
  }
  return out;
}

}  // namespace

AnswerGrammars::AnswerGrammars(std::shared_ptr<const grammar::Vocabulary> marks,
                               grammar::ToolFormat call_format)
    : call_format_(call_format),
      has_call_mark_(marks->special(kCallOpen).has_value()),
      has_thinking_marks_(marks->special(kThinkOpen) && marks->special(kThinkClose)),
      cache_(std::make_unique<grammar::GrammarCache>(
          std::move(marks), grammar::GrammarCache::Limits{.bytes_max = kCacheBytesMax,
                                                          .prepare = std::chrono::milliseconds(0)})) {}

Result<AnswerGrammars> AnswerGrammars::create(const tokenizer::Tokenizer& tokenizer,
                                              grammar::ToolFormat call_format) {
  std::vector<grammar::VocabularyToken> tokens(
      tokenizer.vocab_size(), {.bytes = {}, .kind = grammar::VocabularyToken::Kind::kUnused});
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!tokenizer.is_special(id)) continue;
    tokens[i] = {.bytes = std::string(tokenizer.token_bytes(id)),
                 .kind = grammar::VocabularyToken::Kind::kSpecial};
  }
  const auto ends = tokenizer.end_of_generation();
  TRY(auto marks, grammar::Vocabulary::create(std::move(tokens), {ends.begin(), ends.end()}));
  return AnswerGrammars(std::move(marks), call_format);
}

ApiResult<std::optional<Rules>> AnswerGrammars::rules_of_form(const AnswerForm& form) const {
  Result<Rules> rules = Rules();
  switch (form.kind) {
    case AnswerForm::Kind::kText:
      return std::nullopt;
    case AnswerForm::Kind::kObject:
      return grammar::rules_of_any_object();
    case AnswerForm::Kind::kSchema:
      rules = grammar::rules_of_schema(form.source);
      break;
    case AnswerForm::Kind::kGrammar:
      rules = grammar::parse_gbnf(form.source);
      break;
  }
  if (!rules) return tl::unexpected(refused(form.param, rules.error()));
  return std::move(*rules);
}

ApiResult<grammar::ToolCallRules> AnswerGrammars::rules_of_calls(const Tools& tools, bool only_calls) const {
  using grammar::ToolChoice;
  const bool named = !tools.rule.named.empty();
  const ToolChoice forced = named ? ToolChoice::kNamed : ToolChoice::kRequired;
  auto made = grammar::rules_of_tools(tools_of(tools), {.format = call_format_,
                                                        .choice = only_calls ? forced : ToolChoice::kAuto,
                                                        .named = tools.rule.named,
                                                        .parallel = !tools.rule.one && !named});
  if (!made) return tl::unexpected(refused("tools", made.error()));
  return std::move(*made);
}

ApiResult<AnswerGrammar> AnswerGrammars::compiled(const Rules& rules, std::string param) const {
  Result<std::string> text = rules.to_gbnf();
  if (text) {
    if (auto compiled = cache_->get(*text); !compiled) text = forward_failure(std::move(compiled));
  }
  if (!text) return tl::unexpected(refused(param, text.error()));
  return AnswerGrammar{.gbnf = std::move(*text), .param = std::move(param)};
}

ApiResult<AnswerGrammar> AnswerGrammars::make(const AnswerForm& form, const Tools& tools, bool call_begun,
                                              BeforeAnswer before) const {
  auto formed = rules_of_form(form);
  if (!formed) return tl::unexpected(std::move(formed).error());
  const bool may_call = !tools.offered.empty() && has_call_mark_;
  if (may_call && form.kind == AnswerForm::Kind::kGrammar) {
    return tl::unexpected(invalid_request(
        "grammar and tools exclude each other; send one of them, or tool_choice \"none\"", form.param));
  }
  if (!may_call && !*formed) return AnswerGrammar{};

  Rules rules;
  const grammar::RuleId root = rules.add_rule("root");
  rules.set_root(root);
  std::vector<std::string> warnings;
  std::vector<NodeId> answers;
  if (may_call) {
    auto calls = rules_of_calls(tools, call_begun || *formed);
    if (!calls) return tl::unexpected(std::move(calls).error());
    warnings = std::move(calls->warnings);
    for (std::string& warning : warnings) warning = shortened(warning);
    answers.push_back(rules.add_rules_of(calls->rules));
  }
  if (*formed && !call_begun) answers.push_back(rules.add_rules_of(**formed));
  NodeId answer = rules.choice(std::move(answers));
  if (before == BeforeAnswer::kOpenThinking) {
    answer = rules.sequence({newlines(rules), answer});
  } else if (before == BeforeAnswer::kOwnThinking && has_thinking_marks_) {
    answer = rules.sequence({rules.optional(own_thinking(rules)), answer});
  }
  rules.define(root, answer);

  auto made = compiled(rules, *formed && !call_begun ? form.param : std::string("tools"));
  if (!made && !*formed && tools.strict.empty()) {
    // Tools that are together too much for a grammar still work, as those do whose schema is not understood
    // (rule B20).
    warnings = {fmt::format("arguments are not held to their schemas: {}", made.error().message)};
    made = AnswerGrammar{};
  }
  if (made) made->warnings = std::move(warnings);
  return made;
}

}  // namespace strata::gateway
