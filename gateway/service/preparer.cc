#include "gateway/service/preparer.h"

#include <fmt/format.h>

#include <chrono>
#include <random>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

// Prompts from which a model without a begin token starts a document.
constexpr std::string_view kDocumentStart = "<|endoftext|>";
// Chosen seeds fit into a double, so that every client can send them back unharmed.
constexpr uint64_t kChosenSeedMax = (uint64_t{1} << 53) - 1;

// Whose conversations a request may go on from, and whose they stay. This version checks no API keys, so the
// keys that clients send mean nothing and all requests share one namespace; once keys are checked, the one
// that a request was admitted with belongs here.
NamespaceId namespace_of(const HttpRequest& /*request*/) {
  static const NamespaceId keyless = key_namespace("");
  return keyless;
}

uint64_t choose_seed() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return random() & kChosenSeedMax;
}

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ApiResult<ChatRequest> Preparer::parse_chat(const HttpRequest& request) const {
  auto body = parse_body(request.body);
  if (!body) return tl::unexpected(std::move(body).error());
  return parse_chat_request(*body, tokenizer_.vocab_size());
}

ApiResult<GenerationJob> Preparer::chat(const HttpRequest& request) const {
  auto chat = parse_chat(request);
  if (!chat) return tl::unexpected(std::move(chat).error());
  auto text = prompts_.render(*chat);
  if (!text) return tl::unexpected(std::move(text).error());
  Prompt prompt{.tokens = tokenizer_.encode(*text)};
  if (prompt.tokens.empty())
    return tl::unexpected(invalid_request("the messages give an empty prompt", "messages"));
  prompt.in_thinking = ends_in_thinking(tokenizer_, prompt.tokens);
  prompt.landmarks = landmarks_of(*chat, *text, prompt.tokens);

  GenerationJob job = make_job(Endpoint::kChatCompletions, request, std::move(chat->common));
  job.prompts.push_back(std::move(prompt));
  job.return_progress = chat->return_progress;
  if (!chat->tools.dropped.empty()) {
    job.response_headers.emplace_back("X-Strata-Ignored-Tools",
                                      header_safe(fmt::format("{}", fmt::join(chat->tools.dropped, ", "))));
  }
  return job;
}

PromptLandmarks Preparer::landmarks_of(const ChatRequest& chat, const tokenizer::MarkedText& text,
                                       std::span<const int32_t> tokens) const {
  ChatRequest other = chat;
  const RenderMessages render = [&](boost::json::array messages) -> std::optional<tokenizer::MarkedText> {
    other.messages.list = std::move(messages);
    auto rendered = prompts_.render(other);
    if (!rendered) return std::nullopt;
    return std::move(*rendered);
  };
  return prompt_landmarks(tokenizer_, chat.messages.list, text, tokens, render);
}

// No landmarks: what stands in such a prompt is the client's affair.
ApiResult<GenerationJob> Preparer::completion(const HttpRequest& request) const {
  auto body = parse_body(request.body);
  if (!body) return tl::unexpected(std::move(body).error());
  auto completion = parse_completion_request(*body, tokenizer_.vocab_size());
  if (!completion) return tl::unexpected(std::move(completion).error());
  GenerationJob job = make_job(Endpoint::kCompletions, request, std::move(completion->common));
  for (const CompletionPrompt& given : completion->prompts) {
    auto prompt = completion_prompt(given, completion->echo);
    if (!prompt) return tl::unexpected(std::move(prompt).error());
    job.prompts.push_back(std::move(*prompt));
  }
  return job;
}

ApiResult<std::string> Preparer::template_text(const HttpRequest& request) const {
  auto chat = parse_chat(request);
  if (!chat) return tl::unexpected(std::move(chat).error());
  auto text = prompts_.render(*chat);
  if (!text) return tl::unexpected(std::move(text).error());
  return text->text();
}

ApiResult<Prompt> Preparer::completion_prompt(const CompletionPrompt& given, bool echo) const {
  Prompt prompt;
  if (const auto* text = std::get_if<std::string>(&given)) {
    prompt.tokens = tokenizer_.encode_untrusted(*text);
    if (echo) prompt.echo = *text;
  } else {
    prompt.tokens = std::get<std::vector<int32_t>>(given);
    if (echo) prompt.echo = tokenizer_.decode(prompt.tokens);
  }
  if (prompt.tokens.empty()) {
    const int32_t start = tokenizer_.find_token(kDocumentStart);
    if (start < 0)
      return tl::unexpected(invalid_request("prompt must not be empty with this model", "prompt"));
    prompt.tokens.push_back(start);
  }
  return prompt;
}

GenerationJob Preparer::make_job(Endpoint endpoint, const HttpRequest& request, CommonFields common) const {
  const bool chat = endpoint == Endpoint::kChatCompletions;
  GenerationJob job{.endpoint = endpoint, .name_space = namespace_of(request)};
  job.sampling = resolve_sampling(common.sampling, card_.fallbacks, choose_seed());
  job.sampling.logprobs = common.logprobs;
  job.sampling.top_logprobs = common.top_logprobs;
  job.max_tokens = common.max_tokens;
  job.stop = std::move(common.stop);
  job.stream = common.stream;
  job.include_usage = common.include_usage;
  job.return_reuse = common.return_reuse;
  const std::string* no_wait = request.header("x-no-wait");
  job.no_wait = no_wait != nullptr && *no_wait == "1";
  // There is one model and every name is served (rule B30); the answer says which model it was.
  AnswerIdentity identity{.id = (chat ? "chatcmpl-" : "cmpl-") + request.id,
                          .created = unix_time(),
                          .model = card_.id,
                          .fingerprint = card_.system_fingerprint};
  const FormatOptions format{.scores = common.logprobs};
  job.format = chat ? make_chat_format(std::move(identity), format)
                    : make_completion_format(std::move(identity), format);
  job.response_headers.emplace_back("X-Strata-Sampling", sampling_text(job.sampling));
  return job;
}

}  // namespace strata::gateway
