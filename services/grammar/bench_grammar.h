#pragma once
// What `strata bench --constrained` holds answers to; grammar_bench measures its masks without an engine.

namespace strata::grammar {

// JSON records without an end, so that every answer is as long as it should be. Strings are short: a made-up
// model would never leave one by itself.
inline constexpr const char* kBenchGrammar = R"gbnf(
root ::= "[" record (", " record){99999} "]"
record ::= "{\"name\": " string ", \"kind\": " kind ", \"count\": " integer ", \"tags\": [" string (", " string){0,3} "]}"
kind ::= "\"alpha\"" | "\"beta\"" | "null"
integer ::= "-"? ("0" | [1-9] [0-9]{0,14})
string ::= "\"" character{0,40} "\""
character ::= [^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
)gbnf";

}  // namespace strata::grammar
