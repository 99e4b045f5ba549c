#pragma once
// A request that has been read, checked and turned into tokens: everything that generating its answer needs.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/api/thinking_fields.h"
#include "gateway/conversations/prompt_landmarks.h"
#include "gateway/engine/engine_client.h"
#include "gateway/generation/answer.h"
#include "gateway/generation/answer_format.h"
#include "gateway/metrics/gateway_probe.h"
#include "gateway/responses/response_store.h"

namespace strata::gateway {

struct Prompt {
  std::vector<int32_t> tokens = {};
  bool in_thinking = false;        // the template opened <think>
  std::string echo = {};           // given back in front of the answer
  PromptLandmarks landmarks = {};  // where other prompts are likely to part from it
  uint32_t call_tokens = 0;  // the last ones, if a call begins in it: what the answer's grammar begins with
};

// What the answer is held to. gateway/service/answer_grammar.h makes it.
struct AnswerGrammar {
  std::string gbnf = {};                   // empty: the answer is free
  std::string param = {};                  // the field that asked for it
  std::vector<std::string> warnings = {};  // about tools whose arguments are not held to their schema
};

struct GenerationJob {
  Endpoint endpoint = Endpoint::kChatCompletions;
  NamespaceId name_space = {};
  std::vector<Prompt> prompts = {};  // answered side by side where there are sequences
  uint32_t answers = 1;              // to each prompt; answer i is sampled with the seed + i
  uint32_t choices = 1;              // of them, that are given: if fewer, the best ones
  Sampling sampling = {};
  AnswerGrammar grammar = {};
  // Also of thinking that the model opens itself; not for legacy completions, which know of none.
  uint32_t thinking_tokens_max = kThinkingUnlimited;
  std::optional<uint32_t> max_tokens = {};  // not set: what the context leaves
  std::vector<std::string> stop = {};
  CallOptions calls = {};
  int32_t priority = 0;                                   // lower comes earlier
  std::optional<std::chrono::milliseconds> timeout = {};  // from the start to the last byte
  bool stream = false;
  bool return_progress = false;
  bool return_reuse = false;
  bool no_wait = false;
  std::unique_ptr<AnswerFormat> format = {};
  std::optional<StoredResponse> keep = {};  // for later requests to go on from; its response is still empty
  std::vector<std::pair<std::string, std::string>> response_headers =
      {};  // which sampling was used, and the like

  bool picks_best() const { return choices < answers; }
  Dialect dialect() const { return endpoint == Endpoint::kMessages ? Dialect::kAnthropic : Dialect::kOpenAi; }
};

// The first prompt that leaves no room for an answer; nullptr: all fit.
inline const Prompt* first_too_long(const std::vector<Prompt>& prompts, uint32_t context_tokens) {
  for (const Prompt& prompt : prompts) {
    if (prompt.tokens.size() >= context_tokens) return &prompt;
  }
  return nullptr;
}

}  // namespace strata::gateway
