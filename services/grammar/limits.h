#pragma once
// What a grammar may cost. Grammars and schemas come from clients, so everything that grows with them ends
// somewhere; beyond a limit compiling fails with kResourceExhausted and names what was too large.

#include <cstddef>
#include <cstdint>

namespace strata::grammar {

inline constexpr std::size_t kSourceBytesMax = std::size_t{1} << 20;  // GBNF text or JSON schema
inline constexpr uint32_t kRulesMax = 8'192;
inline constexpr uint32_t kNodesMax = 200'000;  // expressions of all rules together
// Nesting of parentheses, schemas and expressions; the functions that walk them recurse.
inline constexpr uint32_t kNestingMax = 200;
inline constexpr uint32_t kExpressionDepthMax = 2'000;
inline constexpr uint32_t kStatesMax = 300'000;  // of all rules together, before and after determinization
inline constexpr uint32_t kEdgesMax = 2'000'000;
// Schemas looked at while one is compiled; alternatives that are merged with what stands beside them count
// each time.
inline constexpr uint32_t kSchemasMax = 20'000;
// Bounds of {m,n}. Larger ones are an error; n may be left open.
inline constexpr uint32_t kRepeatMax = 1'000'000;

// A repetition is written out as states while it stays below this many; beyond, it counts at run time.
inline constexpr uint32_t kUnrolledStatesMax = 96;
// Rules without calls up to this size are copied to where they are called: a call hides what follows from the
// cached masks, a copy multiplies them.
inline constexpr uint32_t kInlinedStatesMax = 12;
// Rounds of deciding which rules share an automaton; beyond, each has its own.
inline constexpr uint32_t kOwnerRoundsMax = 64;
// Automata of rules up to this size are minimized; refinement takes (states x rounds).
inline constexpr uint32_t kMinimizedStatesMax = 512;

// Readings of the text that one matcher follows at once, and steps that it may take per byte to find them. An
// ambiguous grammar grows polynomially; a token that would need more is not allowed.
inline constexpr uint32_t kConfigsMax = 1'024;
inline constexpr uint32_t kClosureStepsMax = 16'384;

// What one call of a matcher may cost, in places looked at (10 to 30 ns each, Sapphire Rapids). Between two
// windows: some 0.1 ms, several times what usual grammars take at the 99th percentile. On a thread that no
// window waits for: about a second; whose text needs more has too many readings.
inline constexpr uint64_t kQuickStepsMax = 5'000;
inline constexpr uint64_t kPatientStepsMax = 20'000'000;
// What making one mask may cost, in comparisons of places: some tenths of a second. Of a state that would
// need more none is kept.
inline constexpr uint64_t kMaskWorkMax = 300'000'000;
// And in nodes of the vocabulary's tree, each with the ways in which the rule may have ended before it.
inline constexpr uint64_t kMaskNodesMax = 20'000'000;
// What a mask that has to be made counts for, in places looked at: a step makes some dozens at most.
inline constexpr uint64_t kMaskMadeSteps = kPatientStepsMax / 64;

// A rule that is all a counted repetition repeats is copied into it up to this size, so that a token may hold
// several.
inline constexpr uint32_t kCountedBodyStatesMax = 256;

// Texts behind the end of a rule that a mask may leave to be tried at run time. A state where more tokens
// leave its rule (one character that a rule of its own describes) has masks by who called it instead, up to
// this many callers deep.
inline constexpr uint32_t kRestsTriedMax = 2'048;
inline constexpr uint32_t kCallersMax = 4;
// Of all masks of one grammar, and of those by callers among them: two thousand of the largest vocabularies,
// and a thousand. Beyond, a step walks the vocabulary.
inline constexpr std::size_t kMaskBytesMax = std::size_t{64} << 20;
inline constexpr std::size_t kCallerMaskBytesMax = std::size_t{32} << 20;
// Such masks that one step may take; beyond, it walks the vocabulary.
inline constexpr uint32_t kCallerMasksPerStep = 64;

// Tokens longer than this are never allowed under a grammar; a count of repetitions inside a token fits a
// byte.
inline constexpr uint32_t kTokenBytesMax = 250;

}  // namespace strata::grammar
