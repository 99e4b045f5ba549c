#include "gateway/service/preparer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <chrono>
#include <iterator>
#include <random>

#include "gateway/api/json_text.h"
#include "gateway/generation/openai_format.h"
#include "gateway/generation/responses_format.h"
#include "gateway/service/forced_call.h"
#include "gateway/service/tokenize.h"

namespace strata::gateway {

namespace {

// Prompts from which a model without a begin token starts a document.
constexpr std::string_view kDocumentStart = "<|endoftext|>";
// Chosen seeds fit into a double, so that every client can send them back unharmed.
constexpr uint64_t kChosenSeedMax = (uint64_t{1} << 53) - 1;

constexpr std::size_t kWarningBytesMax = 1024;

// Whose conversations a request may go on from, and whose they stay. Where no keys are wanted, those that
// clients send mean nothing and all requests share one namespace.
NamespaceId namespace_of(const HttpRequest& request) { return key_namespace(request.key_hash); }

uint64_t choose_seed() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return random() & kChosenSeedMax;
}

std::string_view id_prefix(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChatCompletions:
      return "chatcmpl-";
    case Endpoint::kCompletions:
      return "cmpl-";
    case Endpoint::kMessages:
      return "msg_";
    case Endpoint::kResponses:
      return "resp_";
  }
  return "";
}

std::unique_ptr<AnswerFormat> make_format(Endpoint endpoint, AnswerIdentity identity, FormatOptions options) {
  switch (endpoint) {
    case Endpoint::kChatCompletions:
      return make_chat_format(std::move(identity), options);
    case Endpoint::kCompletions:
      return make_completion_format(std::move(identity), options);
    case Endpoint::kMessages:
      return make_messages_format(std::move(identity));
    case Endpoint::kResponses:
      break;  // needs more: see response()
  }
  return nullptr;
}

// Where the prompt of this request leaves the model.
BeforeAnswer before_answer(const ChatRequest& chat, const Prompt& prompt) {
  if (prompt.in_thinking) return BeforeAnswer::kOpenThinking;
  const bool begun = prompt.call_tokens > 0 || chat.messages.continues_answer;
  return begun || chat.thinking.on == false ? BeforeAnswer::kNothing : BeforeAnswer::kOwnThinking;
}

// Of a response: whoever knows it may read the response, so nobody else must be able to guess it (rule I9).
std::string random_serial() {
  static thread_local std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
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

ApiResult<ChatRequest> Preparer::parse_messages(const HttpRequest& request, MessagesUse use) const {
  auto body = parse_body(request.body);
  if (!body) return tl::unexpected(std::move(body).error());
  return parse_messages_request(*body, tokenizer_.vocab_size(), use);
}

ApiResult<GenerationJob> Preparer::chat(const HttpRequest& request) const {
  auto chat = parse_chat(request);
  if (!chat) return tl::unexpected(std::move(chat).error());
  return chat_job(std::move(*chat), Endpoint::kChatCompletions, request);
}

ApiResult<GenerationJob> Preparer::messages(const HttpRequest& request) const {
  auto chat = parse_messages(request, MessagesUse::kGenerate);
  if (!chat) return tl::unexpected(std::move(chat).error());
  return chat_job(std::move(*chat), Endpoint::kMessages, request);
}

ApiResult<ResponseRequest> Preparer::read_response(const HttpRequest& request) const {
  auto body = parse_body(request.body);
  if (!body) return tl::unexpected(std::move(body).error());
  return parse_response_request(*body, tokenizer_.vocab_size(), random_serial());
}

ApiResult<GenerationJob> Preparer::response(ResponseRequest asked, const Past& past, bool store,
                                            const HttpRequest& request) const {
  asked.input.resolve(past.referenced);
  auto messages = response_messages(asked.instructions, past.items, asked.input.items);
  if (!messages) return tl::unexpected(std::move(messages).error());
  asked.chat.messages = std::move(messages->messages);
  const bool scores = asked.chat.common.logprobs;
  auto job = chat_job(std::move(asked.chat), Endpoint::kResponses, request);
  if (!job) {
    ApiError error = std::move(job).error();
    if (error.param == "messages") error.param = "input";  // as this dialect calls them
    return tl::unexpected(std::move(error));
  }
  ResponsesOptions options{.echo = std::move(asked.echo),
                           .tools = std::move(asked.tools),
                           .warnings = std::move(asked.warnings),
                           .sealed_reasoning = asked.sealed_reasoning,
                           .scores = scores};
  std::ranges::move(messages->warnings, std::back_inserter(options.warnings));
  std::ranges::copy(job->grammar.warnings, std::back_inserter(options.warnings));
  options.echo["temperature"] = float_json(job->sampling.temperature);
  options.echo["top_p"] = float_json(job->sampling.top_p);
  options.echo["store"] = asked.store && store;
  AnswerIdentity identity = identity_of(Endpoint::kResponses, request);
  identity.id = "resp_" + asked.serial;
  identity.request_id = asked.serial;
  if (asked.store && store) {
    job->keep = StoredResponse{
        .id = identity.id, .previous = asked.previous, .response = {}, .input = to_json(asked.input.items)};
  }
  job->format = make_responses_format(std::move(identity), std::move(options));
  return job;
}

ApiResult<Preparer::ChatPrompt> Preparer::chat_prompt(ChatRequest& chat) const {
  ChatPrompt prompt{.call = begun_call(chat.tools, prompts_.call_format())};
  if (prompt.call && tokenizer_.find_token(kCallOpen) < 0) {
    return tl::unexpected(
        invalid_request("tool_choice: this model has no mark that a call begins with", "tool_choice"));
  }
  // The call stands where the thinking would.
  if (prompt.call) chat.thinking.on = false;
  auto text = prompts_.render(chat);
  if (!text) return tl::unexpected(std::move(text).error());
  prompt.text = std::move(*text);
  prompt.tokens = tokenizer_.encode(prompt.text);
  if (prompt.tokens.empty())
    return tl::unexpected(invalid_request("the messages give an empty prompt", "messages"));
  prompt.text_tokens = prompt.tokens.size();
  if (prompt.call) {
    tokenizer::MarkedText call(kCallOpen, tokenizer::Origin::kTemplate);
    call.append(*prompt.call);
    std::ranges::copy(tokenizer_.encode(call), std::back_inserter(prompt.tokens));
  }
  return prompt;
}

ApiResult<GenerationJob> Preparer::chat_job(ChatRequest chat, Endpoint endpoint,
                                            const HttpRequest& request) const {
  if (chat.form.is_json() && chat.messages.continues_answer) {
    return tl::unexpected(invalid_request(
        fmt::format("{}: an answer that the conversation begins cannot be given a form; end with "
                    "a message of the user",
                    chat.form.param),
        chat.form.param));
  }
  auto made = chat_prompt(chat);
  if (!made) return tl::unexpected(std::move(made).error());
  Prompt prompt{.tokens = std::move(made->tokens)};
  const auto text_tokens = std::span(prompt.tokens).first(made->text_tokens);
  prompt.in_thinking = !made->call && ends_in_thinking(tokenizer_, prompt.tokens);
  prompt.landmarks = landmarks_of(chat, made->text, text_tokens);
  if (made->call) prompt.call_tokens = static_cast<uint32_t>(prompt.tokens.size() - made->text_tokens);
  auto grammar = grammars_.make(chat.form, chat.tools, made->call.has_value(), before_answer(chat, prompt));
  if (!grammar) return tl::unexpected(std::move(grammar).error());

  GenerationJob job = make_job(endpoint, request, std::move(chat.common));
  job.prompts.push_back(std::move(prompt));
  job.grammar = std::move(*grammar);
  job.thinking_tokens_max = resolve_thinking(chat.thinking, card_.thinking_budgets);
  // Whoever switched it off gets none of the model's own either.
  if (chat.thinking.on == false && !job.prompts.front().in_thinking) job.thinking_tokens_max = 0;
  if (!job.grammar.warnings.empty()) {
    const std::string warnings = fmt::format("{}", fmt::join(job.grammar.warnings, "; "));
    job.response_headers.emplace_back("X-Strata-Warnings", header_safe(warnings).substr(0, kWarningBytesMax));
  }
  job.return_progress = chat.return_progress;
  job.calls = {.parse = !chat.tools.offered.empty(),
               .one = chat.tools.rule.one || !chat.tools.rule.named.empty(),
               .strings = string_parameters(chat.tools)};
  if (made->call) job.calls.begun = made->call->text();
  if (!chat.tools.dropped.empty()) {
    job.response_headers.emplace_back("X-Strata-Ignored-Tools",
                                      header_safe(fmt::format("{}", fmt::join(chat.tools.dropped, ", "))));
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
  auto grammar = grammars_.make(completion->form, {}, false, BeforeAnswer::kNothing);
  if (!grammar) return tl::unexpected(std::move(grammar).error());
  GenerationJob job = make_job(Endpoint::kCompletions, request, std::move(completion->common));
  job.answers = completion->best_of;
  job.grammar = std::move(*grammar);
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
  auto prompt = chat_prompt(*chat);
  if (!prompt) return tl::unexpected(std::move(prompt).error());
  std::string text = prompt->text.text();
  if (prompt->call) text.append(kCallOpen).append(prompt->call->text());
  boost::json::object out;
  out["prompt"] = text;
  return to_json(out);
}

ApiResult<std::string> Preparer::count_tokens(const HttpRequest& request) const {
  auto chat = parse_messages(request, MessagesUse::kCount);
  if (!chat) return tl::unexpected(std::move(chat).error());
  auto prompt = chat_prompt(*chat);
  if (!prompt) return tl::unexpected(std::move(prompt).error());
  boost::json::object out;
  out["input_tokens"] = prompt->tokens.size();
  return to_json(out);
}

ApiResult<std::string> Preparer::tokenize(const HttpRequest& request) const {
  auto body = parse_body(request.body);
  if (!body) return tl::unexpected(std::move(body).error());
  return gateway::tokenize(tokenizer_, *body);
}

ApiResult<std::string> Preparer::detokenize(const HttpRequest& request) const {
  auto body = parse_body(request.body);
  if (!body) return tl::unexpected(std::move(body).error());
  return gateway::detokenize(tokenizer_, *body);
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

// There is one model and every name is served (rule B30); the answer says which model it was.
AnswerIdentity Preparer::identity_of(Endpoint endpoint, const HttpRequest& request) const {
  return {.id = std::string(id_prefix(endpoint)) + request.id,
          .request_id = request.id,
          .created = unix_time(),
          .model = card_.id,
          .fingerprint = card_.system_fingerprint};
}

GenerationJob Preparer::make_job(Endpoint endpoint, const HttpRequest& request, CommonFields common) const {
  GenerationJob job{.endpoint = endpoint, .name_space = namespace_of(request)};
  job.sampling = resolve_sampling(common.sampling, card_.fallbacks, choose_seed());
  job.sampling.logprobs = common.logprobs;
  job.sampling.top_logprobs = common.top_logprobs;
  job.answers = job.choices = common.n;
  job.max_tokens = common.max_tokens;
  job.stop = std::move(common.stop);
  job.priority = common.schedule.priority;
  job.timeout = common.schedule.timeout;
  job.stream = common.stream;
  job.return_reuse = common.return_reuse;
  const std::string* no_wait = request.header("x-no-wait");
  job.no_wait = no_wait != nullptr && *no_wait == "1";
  job.format = make_format(endpoint, identity_of(endpoint, request),
                           {.scores = common.logprobs, .include_usage = common.include_usage});
  job.response_headers.emplace_back("X-Strata-Sampling", sampling_text(job.sampling));
  return job;
}

}  // namespace strata::gateway
