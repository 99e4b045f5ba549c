// chat.completion and chat.completion.chunk.

#include <fmt/format.h>

#include <boost/json/array.hpp>

#include "gateway/api/json_text.h"
#include "gateway/generation/openai_format.h"

namespace strata::gateway {

namespace {

boost::json::object logprobs_json(const std::vector<TokenScore>& scores) {
  boost::json::object out;
  out["content"] = scores_json(scores);
  return out;
}

constexpr AnswerPiece::Kind kCallBegin = AnswerPiece::Kind::kCallBegin;

class ChatFormat final : public OpenAiFormat {
 public:
  ChatFormat(AnswerIdentity identity, FormatOptions options)
      : OpenAiFormat(std::move(identity), options, "chat.completion.chunk") {}

  std::string begin_choice(uint32_t choice) override {
    boost::json::object delta;
    delta["role"] = "assistant";
    delta["content"] = "";
    return chunk(with_delta(choice, std::move(delta)));
  }

  std::string piece(uint32_t choice, const AnswerPiece& piece) override {
    if (piece.kind == AnswerPiece::Kind::kCallEnd) return {};
    boost::json::object delta;
    if (is_call(piece.kind)) {
      boost::json::array calls;
      calls.push_back(call_delta(choice, piece));
      delta["tool_calls"] = std::move(calls);
    } else {
      delta[piece.kind == AnswerPiece::Kind::kReasoning ? "reasoning_content" : "content"] = piece.text;
    }
    boost::json::object entry = with_delta(choice, std::move(delta));
    if (options_.scores && piece.kind == AnswerPiece::Kind::kContent) {
      entry["logprobs"] = logprobs_json(piece.scores);
    }
    return chunk(std::move(entry));
  }

  std::string finish_choice(uint32_t choice, const Finish& finish) override {
    return finish_chunk(empty_choice(choice), finish);
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) const override {
    boost::json::object out = envelope("chat.completion");
    boost::json::array list;
    for (uint32_t i = 0; i < choices.size(); ++i) {
      boost::json::object entry;
      entry["index"] = i;
      entry["message"] = message(i, choices[i]);
      entry["logprobs"] = options_.scores ? boost::json::value(logprobs_json(choices[i].scores))
                                          : boost::json::value(nullptr);
      put_finish(entry, choices[i].finish);
      list.push_back(std::move(entry));
    }
    out["choices"] = std::move(list);
    put_usage(out, usage);
    return to_json(out);
  }

 private:
  boost::json::object empty_choice(uint32_t choice) const override { return with_delta(choice, {}); }

  static boost::json::object with_delta(uint32_t choice, boost::json::object delta) {
    boost::json::object entry;
    entry["index"] = choice;
    entry["delta"] = std::move(delta);
    entry["finish_reason"] = nullptr;
    return entry;
  }

  std::string call_id(uint32_t choice, uint32_t call) const {
    if (choice == 0) return fmt::format("call_{}_{}", identity_.request_id, call);
    return fmt::format("call_{}_{}_{}", identity_.request_id, choice, call);
  }

  boost::json::object call_json(uint32_t choice, uint32_t call, std::string_view name,
                                std::string_view arguments) const {
    boost::json::object function, out;
    function["name"] = name;
    function["arguments"] = arguments;
    out["id"] = call_id(choice, call);
    out["type"] = "function";
    out["function"] = std::move(function);
    return out;
  }

  // The first delta of a call has everything but the arguments, the others have only a piece of these:
  // clients put together what they get twice (case 14).
  boost::json::object call_delta(uint32_t choice, const AnswerPiece& piece) const {
    boost::json::object out, function;
    out["index"] = piece.call;
    if (piece.kind == kCallBegin) {
      for (auto& member : call_json(choice, piece.call, piece.text, ""))
        out[member.key()] = std::move(member.value());
    } else {
      function["arguments"] = piece.text;
      out["function"] = std::move(function);
    }
    return out;
  }

  boost::json::object message(uint32_t index, const Choice& choice) const {
    const std::string content = choice.text(AnswerPiece::Kind::kContent);
    const std::string reasoning = choice.text(AnswerPiece::Kind::kReasoning);
    boost::json::array calls;
    for (const AnswerBlock& block : choice.blocks) {
      if (block.kind != kCallBegin) continue;
      calls.push_back(call_json(index, static_cast<uint32_t>(calls.size()), block.name, block.text));
    }
    boost::json::object out;
    out["role"] = "assistant";
    out["content"] =
        content.empty() && !calls.empty() ? boost::json::value(nullptr) : boost::json::value(content);
    if (!reasoning.empty()) out["reasoning_content"] = reasoning;
    if (!calls.empty()) out["tool_calls"] = std::move(calls);
    return out;
  }
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(AnswerIdentity identity, FormatOptions options) {
  return std::make_unique<ChatFormat>(std::move(identity), options);
}

}  // namespace strata::gateway
