#pragma once
// Grammars of answers that call tools: which tools, whether one must be called, how a call is written.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/grammar/json_rules.h"
#include "services/grammar/rules.h"

namespace strata::grammar {

struct Tool {
  std::string name;
  std::string parameters = {};  // JSON schema of the arguments, an object; empty: no arguments
  // Refused if its schema is not in the subset. Otherwise its arguments are then any JSON object (kJson) or
  // any texts (kParameters), and a warning says so.
  bool strict = false;
};

// How a chat template writes a call between <tool_call> and </tool_call>, each on lines of its own.
enum class ToolFormat : uint8_t {
  kJson,        // {"name": "NAME", "arguments": {...}}
  kParameters,  // <function=NAME>, for each argument <parameter=KEY> VALUE </parameter>, </function>
};

// The form that a chat template shows to the model.
ToolFormat tool_format_of_template(std::string_view chat_template);

enum class ToolChoice : uint8_t {
  // Free text, which a call may end. The call begins with the token: the mark spelled in other tokens is text
  // (without such a token, its spelling may begin one and may be text).
  kAuto,
  kRequired,  // at least one call and nothing else
  kNamed,     // one call of ToolCallOptions::named
};

struct ToolCallOptions {
  ToolFormat format = ToolFormat::kJson;
  ToolChoice choice = ToolChoice::kAuto;
  std::string named = {};  // kNamed
  bool parallel = true;    // more than one call (kNamed: of the same tool)
  Whitespace whitespace = Whitespace::kSingle;
};

struct ToolCallRules {
  Rules rules;
  std::vector<std::string> warnings;
};

// Errors: kInvalidArgument naming the tool: no tools, two of one name, a name that is empty or has characters
// beyond letters, digits, _ - . : / (128 at most), `named` not among them, and of a strict one what
// rules_of_schema refuses.
Result<ToolCallRules> rules_of_tools(std::span<const Tool> tools, const ToolCallOptions& options);

}  // namespace strata::grammar
