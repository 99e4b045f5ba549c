#include "services/cli/probe_patterns.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "services/base/check.h"

namespace strata::cli {

namespace {

constexpr double kMessageTokens = 250;  // of a history: some turns even in a short one
constexpr uint32_t kQuestionTokens = 20;
constexpr uint32_t kToolResultTokens = 50;
constexpr uint32_t kEditedTokens = 50;
constexpr uint32_t kSummaryTokens = 100;

struct Conversation {
  std::vector<ProbeMessage> messages;
  ProbeAnswer answer;  // the last one
};

// One run of one pattern.
class Pattern {
 public:
  Pattern(std::string_view name, const ProbePlan& plan, const TokenRate& rate, const ProbeAsk& ask)
      : plan_(plan), rate_(rate), ask_(ask) {
    result_.pattern = name;
    // Patterns of one run do not share texts: one would find what another left behind.
    const auto* at = std::ranges::find(kProbePatterns, name);
    number_ = static_cast<uint64_t>(at - kProbePatterns.begin()) << 24;
  }

  Result<ProbeResult> run() {
    if (result_.pattern == "alternate") TRY_OK(alternate());
    if (result_.pattern == "loop") TRY_OK(loop());
    if (result_.pattern == "shared") TRY_OK(shared());
    if (result_.pattern == "edit") TRY_OK(edit());
    if (result_.pattern == "compact") TRY_OK(compact());
    return std::move(result_);
  }

 private:
  Status alternate() {
    std::vector<Conversation> firsts, conversations;
    for (uint32_t i = 0; i < plan_.conversations; ++i) {
      Conversation conversation = begin(plan_.tokens, kQuestionTokens);
      TRY_OK(send("cold", conversation));
      firsts.push_back(conversation);
      TRY_OK(next_turn("warm", conversation, kQuestionTokens));
      conversations.push_back(std::move(conversation));
    }
    for (uint32_t round = 0; round < plan_.rounds; ++round)
      for (Conversation& conversation : conversations)
        TRY_OK(next_turn("switched", conversation, kQuestionTokens));
    // The prompt of a later turn has generated tokens in it, which may be computed otherwise than tokens that
    // are read. That of the first request has none: the same request has the same answer, to the letter.
    for (const Conversation& first : firsts) {
      Conversation again = first;
      TRY_OK(send("repeated", again));
      ++result_.compared;
      if (again.answer.text == first.answer.text && again.answer.reasoning == first.answer.reasoning)
        ++result_.identical;
    }
    return {};
  }

  Status loop() {
    Conversation conversation = begin(plan_.tokens, kQuestionTokens);
    TRY_OK(send("cold", conversation));
    for (uint32_t step = 0; step < plan_.steps; ++step)
      TRY_OK(next_turn("step", conversation, kToolResultTokens));
    return {};
  }

  Status shared() {
    for (uint32_t round = 0; round < plan_.rounds; ++round) {
      const ProbeMessage system = message("system", plan_.tokens);
      for (uint32_t chat = 0; chat < plan_.conversations; ++chat) {
        Conversation conversation{.messages = {system, message("user", kQuestionTokens)}, .answer = {}};
        TRY_OK(send(chat == 0 ? "cold" : "shared", conversation));
      }
    }
    return {};
  }

  Status edit() {
    for (uint32_t i = 0; i < plan_.conversations; ++i) {
      Conversation conversation = begin(plan_.tokens, kEditedTokens);
      TRY_OK(send("cold", conversation));
      for (uint32_t round = 0; round < plan_.rounds; ++round) {
        conversation.messages.back() = message("user", kEditedTokens);
        TRY_OK(send("edited", conversation));
      }
    }
    return {};
  }

  // Half of the tokens are the system prompt, which stays.
  Status compact() {
    for (uint32_t i = 0; i < plan_.conversations; ++i) {
      const uint32_t half = plan_.tokens / 2;
      const ProbeMessage system = message("system", half);
      Conversation conversation = begin(plan_.tokens - half, kQuestionTokens);
      conversation.messages.insert(conversation.messages.begin(), system);
      TRY_OK(send("cold", conversation));
      for (uint32_t round = 0; round < plan_.rounds; ++round) {
        Conversation compacted{.messages = {system, message("user", kSummaryTokens)}, .answer = {}};
        TRY_OK(send("compacted", compacted));
      }
    }
    return {};
  }

  ProbeMessage message(std::string_view role, double tokens) {
    return {std::string(role), filler_text(plan_.seed, ++number_, rate_.words(tokens))};
  }

  // A history in which user and assistant take turns, and a new message of the user.
  Conversation begin(uint32_t tokens, uint32_t question_tokens) {
    const double turns = std::max(1.0, std::round(tokens / (2 * kMessageTokens)));
    Conversation conversation;
    for (double turn = 0; turn < turns; ++turn)
      for (const std::string_view role : {"user", "assistant"})
        conversation.messages.push_back(message(role, tokens / (2 * turns)));
    conversation.messages.push_back(message("user", question_tokens));
    return conversation;
  }

  Status send(std::string_view series, Conversation& conversation) {
    TRY(conversation.answer, ask_({.messages = conversation.messages, .max_tokens = plan_.answer_tokens}));
    auto found = std::ranges::find(result_.series, series, &ProbeSeries::name);
    if (found == result_.series.end())
      found = result_.series.insert(found, {.name = std::string(series), .samples = {}});
    found->samples.push_back({.seconds = conversation.answer.first_token_seconds,
                              .prompt_tokens = conversation.answer.prompt_tokens,
                              .cached_tokens = conversation.answer.cached_tokens});
    return {};
  }

  Status next_turn(std::string_view series, Conversation& conversation, uint32_t tokens) {
    // Servers drop empty messages of an assistant, and templates refuse two messages of the user in a row.
    const std::string& said = conversation.answer.text;
    conversation.messages.push_back({"assistant", said.empty() ? "-" : said});
    conversation.messages.push_back(message("user", tokens));
    return send(series, conversation);
  }

  const ProbePlan& plan_;
  const TokenRate& rate_;
  const ProbeAsk& ask_;
  uint64_t number_ = 0;  // of the last text
  ProbeResult result_;
};

}  // namespace

uint64_t probe_tokens_needed(std::string_view pattern, const ProbePlan& plan, const TokenRate& rate) {
  const auto turn = [&](uint32_t tokens) { return tokens + rate.per_message + plan.answer_tokens; };
  double needed = plan.tokens + turn(kQuestionTokens);
  if (pattern == "alternate") needed += (plan.rounds + 1) * turn(kQuestionTokens);
  if (pattern == "loop") needed += plan.steps * turn(kToolResultTokens);
  if (pattern == "edit") needed += kEditedTokens - kQuestionTokens;
  constexpr double kReserve = 1.03;  // lengths are estimates
  return static_cast<uint64_t>(std::ceil(needed * kReserve));
}

Result<ProbeResult> run_probe_pattern(std::string_view pattern, const ProbePlan& plan, const TokenRate& rate,
                                      const ProbeAsk& ask) {
  CHECK(std::ranges::count(kProbePatterns, pattern) == 1, "{}", pattern);
  const uint64_t needed = probe_tokens_needed(pattern, plan, rate);
  if (plan.context_tokens > 0 && needed > plan.context_tokens) {
    const char* more = pattern == "alternate" ? " or --rounds" : pattern == "loop" ? " or --steps" : "";
    return fail(Code::kOutOfRange,
                "{} needs a context of about {} tokens, the server has {}: lower --tokens{}", pattern, needed,
                plan.context_tokens, more);
  }
  return Pattern(pattern, plan, rate, ask).run();
}

}  // namespace strata::cli
