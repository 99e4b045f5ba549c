// text_completion, whole and in chunks, with the legacy form of log probabilities.

#include <boost/json/array.hpp>
#include <map>

#include "gateway/api/json_text.h"
#include "gateway/api/utf8.h"
#include "gateway/generation/openai_format.h"

namespace strata::gateway {

namespace {

// offset: characters of the text before the first of these tokens; moves on.
boost::json::object legacy_logprobs(const std::vector<TokenScore>& scores, std::size_t& offset) {
  boost::json::array tokens, token_logprobs, top_logprobs, text_offset;
  for (const TokenScore& score : scores) {
    const std::string text = to_valid_utf8(score.bytes);
    boost::json::object top;
    for (const auto& [bytes, logprob] : score.top) top[to_valid_utf8(bytes)] = float_json(logprob);
    top[text] = float_json(score.logprob);  // the chosen token is always listed
    tokens.push_back(boost::json::value(text));
    token_logprobs.push_back(float_json(score.logprob));
    top_logprobs.push_back(std::move(top));
    text_offset.push_back(offset);
    offset += count_characters(text);
  }
  boost::json::object out;
  out["tokens"] = std::move(tokens);
  out["token_logprobs"] = std::move(token_logprobs);
  out["top_logprobs"] = std::move(top_logprobs);
  out["text_offset"] = std::move(text_offset);
  return out;
}

class CompletionFormat final : public OpenAiFormat {
 public:
  CompletionFormat(AnswerIdentity identity, FormatOptions options)
      : OpenAiFormat(std::move(identity), options, kObject) {}

  std::string begin_choice(uint32_t) override { return {}; }

  std::string piece(uint32_t choice, const AnswerPiece& piece) override {
    boost::json::object entry = with_text(choice, piece.text);
    if (options_.scores) entry["logprobs"] = legacy_logprobs(piece.scores, offsets_[choice]);
    return chunk(std::move(entry));
  }

  std::string finish_choice(uint32_t choice, const Finish& finish) override {
    return finish_chunk(empty_choice(choice), finish);
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) const override {
    boost::json::object out = envelope(kObject);
    boost::json::array list;
    for (uint32_t i = 0; i < choices.size(); ++i) {
      boost::json::object entry;
      std::size_t offset = 0;
      entry["text"] = choices[i].text(AnswerPiece::Kind::kContent);
      entry["index"] = i;
      entry["logprobs"] = options_.scores ? boost::json::value(legacy_logprobs(choices[i].scores, offset))
                                          : boost::json::value(nullptr);
      put_finish(entry, choices[i].finish);
      list.push_back(std::move(entry));
    }
    out["choices"] = std::move(list);
    put_usage(out, usage);
    return to_json(out);
  }

 private:
  static constexpr std::string_view kObject = "text_completion";

  boost::json::object empty_choice(uint32_t choice) const override { return with_text(choice, ""); }

  static boost::json::object with_text(uint32_t choice, std::string_view text) {
    boost::json::object entry;
    entry["text"] = text;
    entry["index"] = choice;
    entry["logprobs"] = nullptr;
    entry["finish_reason"] = nullptr;
    return entry;
  }

  std::map<uint32_t, std::size_t> offsets_;  // by choice, in characters
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completion_format(AnswerIdentity identity, FormatOptions options) {
  return std::make_unique<CompletionFormat>(std::move(identity), options);
}

}  // namespace strata::gateway
