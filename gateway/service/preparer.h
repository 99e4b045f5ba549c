#pragma once
// From the body of a request to a job for the engine: parse, check, render, tokenize. Any thread; a large
// body takes a while, so it is not done on the HTTP thread.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gateway/api/completion_request.h"
#include "gateway/api/messages_request.h"
#include "gateway/api/response_request.h"
#include "gateway/generation/generation_job.h"
#include "gateway/http/http_message.h"
#include "gateway/responses/response_keeper.h"
#include "gateway/service/answer_grammar.h"
#include "gateway/service/chat_prompts.h"
#include "gateway/service/model_card.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

class Preparer {
 public:
  Preparer(tokenizer::Tokenizer tokenizer, ChatPrompts prompts, AnswerGrammars grammars, ModelCard card)
      : tokenizer_(std::move(tokenizer)),
        prompts_(std::move(prompts)),
        grammars_(std::move(grammars)),
        card_(std::move(card)) {}

  ApiResult<GenerationJob> chat(const HttpRequest& request) const;
  ApiResult<GenerationJob> messages(const HttpRequest& request) const;
  ApiResult<GenerationJob> completion(const HttpRequest& request) const;
  // In two steps, for between them somebody else finds out what the request goes on from. store: whether
  // responses are stored here at all.
  ApiResult<ResponseRequest> read_response(const HttpRequest& request) const;
  ApiResult<GenerationJob> response(ResponseRequest asked, const Past& past, bool store,
                                    const HttpRequest& request) const;
  // Bodies of responses that need no engine. POST /apply-template: the text that a chat request would be
  // answered from; POST /v1/messages/count_tokens: how many tokens a message's prompt has.
  ApiResult<std::string> template_text(const HttpRequest& request) const;
  ApiResult<std::string> count_tokens(const HttpRequest& request) const;
  ApiResult<std::string> tokenize(const HttpRequest& request) const;
  ApiResult<std::string> detokenize(const HttpRequest& request) const;

  const tokenizer::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  // What a request of a chat becomes.
  struct ChatPrompt {
    tokenizer::MarkedText text = {};                 // from the template
    std::optional<tokenizer::MarkedText> call = {};  // that the answer has to go on with, behind its mark
    std::vector<int32_t> tokens = {};                // of both
    std::size_t text_tokens = 0;                     // of the first
  };

  ApiResult<ChatRequest> parse_chat(const HttpRequest& request) const;
  ApiResult<ChatRequest> parse_messages(const HttpRequest& request, MessagesUse use) const;
  ApiResult<ChatPrompt> chat_prompt(ChatRequest& chat) const;
  ApiResult<GenerationJob> chat_job(ChatRequest chat, Endpoint endpoint, const HttpRequest& request) const;
  ApiResult<Prompt> completion_prompt(const CompletionPrompt& given, bool echo) const;
  PromptLandmarks landmarks_of(const ChatRequest& chat, const tokenizer::MarkedText& text,
                               std::span<const int32_t> tokens) const;
  AnswerIdentity identity_of(Endpoint endpoint, const HttpRequest& request) const;
  GenerationJob make_job(Endpoint endpoint, const HttpRequest& request, CommonFields common) const;

  tokenizer::Tokenizer tokenizer_;
  ChatPrompts prompts_;
  AnswerGrammars grammars_;
  ModelCard card_;
};

}  // namespace strata::gateway
