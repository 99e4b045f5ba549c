#pragma once
// How an answer is made to begin with a call: the prompt ends inside one, with the mark and, where only one
// tool comes into question, everything up to its arguments. The form is that of the model's template, so the
// model goes on as it would have done by itself.

#include <optional>

#include "gateway/api/tools.h"
#include "gateway/generation/tool_call_reader.h"
#include "services/grammar/tool_calls.h"
#include "services/tokenizer/marked_text.h"

namespace strata::gateway {

// What stands behind the opening mark; nothing where no call is forced.
std::optional<tokenizer::MarkedText> begun_call(const Tools& tools, grammar::ToolFormat format);

// Which arguments of the tools are strings.
StringParameters string_parameters(const Tools& tools);

}  // namespace strata::gateway
