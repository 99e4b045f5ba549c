// chat.completion and chat.completion.chunk.

#include <boost/json/array.hpp>

#include "gateway/api/json_text.h"
#include "gateway/api/utf8.h"
#include "gateway/generation/format_parts.h"

namespace strata::gateway {

namespace {

boost::json::object token_json(const std::string& bytes, float logprob) {
  boost::json::array byte_values;
  for (char c : bytes) byte_values.push_back(static_cast<unsigned char>(c));
  boost::json::object out;
  out["token"] = to_valid_utf8(bytes);
  out["logprob"] = float_json(logprob);
  out["bytes"] = std::move(byte_values);
  return out;
}

boost::json::object logprobs_json(const std::vector<TokenScore>& scores) {
  boost::json::array content;
  for (const TokenScore& score : scores) {
    boost::json::object entry = token_json(score.bytes, score.logprob);
    boost::json::array top;
    for (const auto& [bytes, logprob] : score.top) top.push_back(token_json(bytes, logprob));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  boost::json::object out;
  out["content"] = std::move(content);
  return out;
}

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(AnswerIdentity identity, FormatOptions options)
      : AnswerFormat(std::move(identity)), options_(options) {}

  std::string begin_chunk(uint32_t choice) const override {
    boost::json::object delta;
    delta["role"] = "assistant";
    delta["content"] = "";
    return chunk(choice, std::move(delta), nullptr);
  }

  std::string piece_chunk(uint32_t choice, const AnswerPiece& piece) override {
    boost::json::object delta;
    delta[piece.kind == AnswerPiece::Kind::kReasoning ? "reasoning_content" : "content"] = piece.text;
    return chunk(choice, std::move(delta), &piece);
  }

  std::string finish_chunk(uint32_t choice, const Finish& finish) const override {
    boost::json::object entry = choice_json(choice, {});
    put_finish(entry, finish);
    return envelope({std::move(entry)});
  }

  std::string usage_chunk(const Usage& usage) const override {
    return usage_chunk_text(identity_, kChunk, usage);
  }

  std::string progress_chunk(uint32_t choice, const PromptProgress& progress,
                             uint64_t time_ms) const override {
    return progress_chunk_text(identity_, kChunk, choice_json(choice, {}), progress, time_ms);
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) const override {
    boost::json::object out = answer_envelope(identity_, "chat.completion");
    boost::json::array list;
    for (uint32_t i = 0; i < choices.size(); ++i) {
      boost::json::object message, entry;
      message["role"] = "assistant";
      message["content"] = choices[i].content;
      if (!choices[i].reasoning.empty()) message["reasoning_content"] = choices[i].reasoning;
      entry["index"] = i;
      entry["message"] = std::move(message);
      entry["logprobs"] = options_.scores ? boost::json::value(logprobs_json(choices[i].scores))
                                          : boost::json::value(nullptr);
      put_finish(entry, choices[i].finish);
      list.push_back(std::move(entry));
    }
    out["choices"] = std::move(list);
    out["usage"] = usage_json(usage);
    return to_json(out);
  }

 private:
  static constexpr std::string_view kChunk = "chat.completion.chunk";

  static boost::json::object choice_json(uint32_t choice, boost::json::object delta) {
    boost::json::object entry;
    entry["index"] = choice;
    entry["delta"] = std::move(delta);
    entry["finish_reason"] = nullptr;
    return entry;
  }

  std::string envelope(boost::json::object entry) const {
    boost::json::object out = answer_envelope(identity_, kChunk);
    boost::json::array choices;
    choices.push_back(std::move(entry));
    out["choices"] = std::move(choices);
    return to_json(out);
  }

  std::string chunk(uint32_t choice, boost::json::object delta, const AnswerPiece* scored) const {
    boost::json::object entry = choice_json(choice, std::move(delta));
    if (options_.scores && scored != nullptr && scored->kind == AnswerPiece::Kind::kContent) {
      entry["logprobs"] = logprobs_json(scored->scores);
    }
    return envelope(std::move(entry));
  }

  FormatOptions options_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(AnswerIdentity identity, FormatOptions options) {
  return std::make_unique<ChatFormat>(std::move(identity), options);
}

}  // namespace strata::gateway
