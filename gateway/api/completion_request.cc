#include "gateway/api/completion_request.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/string.hpp>

#include "gateway/api/json_text.h"
#include "services/base/limits.h"

namespace strata::gateway {

namespace {

ApiError bad_prompt(const boost::json::value& got) {
  return invalid_request(
      fmt::format("prompt must be a string, an array of strings, or an array of token ids, got {}",
                  describe(got)),
      "prompt");
}

ApiResult<std::vector<int32_t>> read_tokens(const boost::json::array& list, uint32_t vocab) {
  std::vector<int32_t> tokens;
  tokens.reserve(list.size());
  for (const auto& element : list) {
    auto id = whole_number(element);
    if (!id) return tl::unexpected(bad_prompt(element));
    if (*id < 0 || *id >= vocab) {
      return tl::unexpected(
          invalid_request(fmt::format("prompt: {} is no token id below {}", *id, vocab), "prompt"));
    }
    tokens.push_back(static_cast<int32_t>(*id));
  }
  return tokens;
}

ApiResult<std::vector<CompletionPrompt>> read_prompts(const boost::json::value* value, uint32_t vocab) {
  if (value == nullptr) return tl::unexpected(invalid_request("prompt is missing", "prompt"));
  std::vector<CompletionPrompt> prompts;
  if (value->is_string()) {
    prompts.emplace_back(std::string(value->get_string()));
    return prompts;
  }
  if (!value->is_array() || value->get_array().empty()) return tl::unexpected(bad_prompt(*value));
  const boost::json::array& list = value->get_array();
  if (list.front().is_number()) {
    auto tokens = read_tokens(list, vocab);
    if (!tokens) return tl::unexpected(std::move(tokens).error());
    prompts.emplace_back(std::move(*tokens));
    return prompts;
  }
  if (list.size() > kPromptsMax) {
    return tl::unexpected(invalid_request(
        fmt::format("prompt may hold at most {} prompts, got {}", kPromptsMax, list.size()), "prompt"));
  }
  for (const auto& element : list) {
    if (element.is_string()) {
      prompts.emplace_back(std::string(element.get_string()));
    } else if (element.is_array() && !element.get_array().empty()) {
      auto tokens = read_tokens(element.get_array(), vocab);
      if (!tokens) return tl::unexpected(std::move(tokens).error());
      prompts.emplace_back(std::move(*tokens));
    } else {
      return tl::unexpected(bad_prompt(element));
    }
  }
  return prompts;
}

// Which answer is the best is known when all are complete, so there is no stream of it (OpenAI's rule).
uint32_t read_best_of(FieldReader& fields, const CommonFields& common) {
  const auto given = fields.integer("best_of", 1, kBestOfMax);
  if (!given) return common.n;
  const auto best_of = static_cast<uint32_t>(*given);
  if (best_of < common.n) {
    fields.fail("best_of", fmt::format("best_of must be at least n, got {} for {}", best_of, common.n));
  } else if (best_of > common.n && common.stream) {
    fields.fail("best_of", "best_of above n cannot be streamed: the best answer is known at the end");
  }
  return best_of;
}

}  // namespace

ApiResult<CompletionRequest> parse_completion_request(const boost::json::object& body, uint32_t vocab) {
  FieldReader fields(body);
  CompletionRequest request;
  request.common = read_common_fields(fields, vocab);
  const bool has_cap =
      fields.find("max_tokens") != nullptr || fields.find("max_completion_tokens") != nullptr;
  if (!has_cap) request.common.max_tokens = kCompletionTokensDefault;
  if (auto top = fields.integer("logprobs", 0, kTopLogprobsMax)) {
    request.common.logprobs = true;
    request.common.top_logprobs = static_cast<uint32_t>(*top);
  }
  request.echo = fields.boolean("echo").value_or(false);
  if (request.echo && request.common.logprobs) {
    fields.fail(
        "echo",
        "echo together with logprobs is not supported: the prompt's tokens have no log probabilities");
  }
  request.best_of = read_best_of(fields, request.common);
  request.form = read_answer_form(fields);
  if (auto suffix = fields.string("suffix"); suffix && !suffix->empty())
    fields.fail("suffix", "suffix is not supported");
  if (fields.failed()) return fields.error();
  auto prompts = read_prompts(fields.find("prompt"), vocab);
  if (!prompts) return tl::unexpected(std::move(prompts).error());
  request.prompts = std::move(*prompts);
  if (request.prompts.size() * request.best_of > kChoicesMax) {
    return tl::unexpected(
        invalid_request(fmt::format("{} prompts with {} answers each are more than {} choices",
                                    request.prompts.size(), request.best_of, kChoicesMax),
                        "n"));
  }
  return request;
}

}  // namespace strata::gateway
