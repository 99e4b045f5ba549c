#pragma once
// The grammar that an answer is held to (docs/grammar.md): from the form that the request asks for and the
// tools that it offers, for a prompt that leaves the model where it does. Compiled here once, so that what
// cannot be held to is a fault of the request and never an answer that is not held (rule B18).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/api/answer_form.h"
#include "gateway/api/api_error.h"
#include "gateway/api/tools.h"
#include "gateway/generation/generation_job.h"
#include "services/grammar/grammar_cache.h"
#include "services/grammar/tool_calls.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

// What may stand in front of the part that is held to the grammar.
enum class BeforeAnswer : uint8_t {
  kNothing,
  kOpenThinking,  // the prompt leaves the model in it; the grammar begins behind its end
  kOwnThinking,   // the model may open and close it by itself, as the first thing it does
};

class AnswerGrammars {
 public:
  // call_format: of the model's chat template.
  static Result<AnswerGrammars> create(const tokenizer::Tokenizer& tokenizer,
                                       grammar::ToolFormat call_format);

  // call_begun: the prompt ends inside a call that the tool_choice asks for. Beside it no form counts. Where
  // a call is possible and a form is asked for the answer is calls, or text of the form. Any thread. Errors:
  // 400 naming the field, keyword and place.
  ApiResult<AnswerGrammar> make(const AnswerForm& form, const Tools& tools, bool call_begun,
                                BeforeAnswer before) const;

 private:
  AnswerGrammars(std::shared_ptr<const grammar::Vocabulary> marks, grammar::ToolFormat call_format);

  ApiResult<std::optional<grammar::Rules>> rules_of_form(const AnswerForm& form) const;
  ApiResult<grammar::ToolCallRules> rules_of_calls(const Tools& tools, bool only_calls) const;
  ApiResult<AnswerGrammar> compiled(const grammar::Rules& rules, std::string param) const;

  grammar::ToolFormat call_format_;
  bool has_call_mark_, has_thinking_marks_;
  // Only asked whether a grammar compiles, so its vocabulary has the special tokens and no others.
  std::unique_ptr<grammar::GrammarCache> cache_;
};

}  // namespace strata::gateway
