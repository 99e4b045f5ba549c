#pragma once
// From the body of a request to a job for the engine: parse, check, render, tokenize. Any thread; a large
// body takes a while, so it is not done on the HTTP thread.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gateway/api/completion_request.h"
#include "gateway/generation/generation_job.h"
#include "gateway/http/http_message.h"
#include "gateway/service/chat_prompts.h"
#include "gateway/service/model_card.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

class Preparer {
 public:
  Preparer(tokenizer::Tokenizer tokenizer, ChatPrompts prompts, ModelCard card)
      : tokenizer_(std::move(tokenizer)), prompts_(std::move(prompts)), card_(std::move(card)) {}

  ApiResult<GenerationJob> chat(const HttpRequest& request) const;
  ApiResult<GenerationJob> completion(const HttpRequest& request) const;
  // The prompt's text that a chat request would be answered from: POST /apply-template.
  ApiResult<std::string> template_text(const HttpRequest& request) const;

  const tokenizer::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  ApiResult<ChatRequest> parse_chat(const HttpRequest& request) const;
  ApiResult<Prompt> completion_prompt(const CompletionPrompt& given, bool echo) const;
  PromptLandmarks landmarks_of(const ChatRequest& chat, const tokenizer::MarkedText& text,
                               std::span<const int32_t> tokens) const;
  GenerationJob make_job(Endpoint endpoint, const HttpRequest& request, CommonFields common) const;

  tokenizer::Tokenizer tokenizer_;
  ChatPrompts prompts_;
  ModelCard card_;
};

}  // namespace strata::gateway
