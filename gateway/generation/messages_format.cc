// Anthropic's message and its events: message_start, for each block content_block_start, deltas and
// content_block_stop, then message_delta and message_stop; `ping` while nothing else is to be said.

#include <fmt/format.h>

#include <boost/json/array.hpp>

#include "gateway/api/json_text.h"
#include "gateway/generation/answer_format.h"
#include "gateway/generation/sse.h"

namespace strata::gateway {

namespace {

using Kind = AnswerPiece::Kind;

// Thinking that is sent back must carry one in this dialect; nobody checks it here.
constexpr std::string_view kSignature = "strata";

std::string_view stop_reason(Finish::Reason reason) {
  switch (reason) {
    case Finish::Reason::kStop:
      break;
    case Finish::Reason::kStopString:
      return "stop_sequence";
    case Finish::Reason::kLength:
      return "max_tokens";
    case Finish::Reason::kToolCalls:
      return "tool_use";
  }
  return "end_turn";
}

void put_stop(boost::json::object& out, const Finish& finish) {
  out["stop_reason"] = stop_reason(finish.reason);
  out["stop_sequence"] = finish.reason == Finish::Reason::kStopString ? boost::json::value(finish.stop_string)
                                                                      : boost::json::value(nullptr);
  if (!finish.detail.empty()) out["finish_detail"] = finish.detail;
}

// The three parts of the prompt add up to it.
boost::json::object message_usage(const Usage& usage) {
  boost::json::object out;
  out["input_tokens"] = usage.prompt_tokens - usage.cached_tokens - usage.cache_creation_tokens;
  out["cache_creation_input_tokens"] = usage.cache_creation_tokens;
  out["cache_read_input_tokens"] = usage.cached_tokens;
  out["output_tokens"] = usage.completion_tokens;
  return out;
}

boost::json::object thinking_block(std::string_view text, std::string_view signature) {
  boost::json::object out;
  out["type"] = "thinking";
  out["thinking"] = text;
  out["signature"] = signature;
  return out;
}

boost::json::object text_block(std::string_view text) {
  boost::json::object out;
  out["type"] = "text";
  out["text"] = text;
  return out;
}

class MessagesFormat final : public AnswerFormat {
 public:
  using AnswerFormat::AnswerFormat;

  std::string begin_stream(const Usage& prompts) override {
    boost::json::object start = message({});
    start["stop_reason"] = nullptr;
    start["stop_sequence"] = nullptr;
    start["usage"] = message_usage(prompts);
    boost::json::object out;
    out["message"] = std::move(start);
    return event("message_start", std::move(out));
  }

  std::string queued(uint32_t) override { return keep_alive(); }
  std::string keep_alive() override { return event("ping", {}); }
  std::string progress(uint32_t, const PromptProgress&, uint64_t) override { return keep_alive(); }
  std::string begin_choice(uint32_t) override { return {}; }

  std::string piece(uint32_t, const AnswerPiece& piece) override {
    if (piece.kind == Kind::kCallEnd || (piece.text.empty() && !is_call(piece.kind))) return {};
    std::string out;
    const Kind block = is_call(piece.kind) ? Kind::kCallBegin : piece.kind;
    if (piece.kind == Kind::kCallBegin || open_ != block) {
      out = close_block();
      open_ = block;
      out += event("content_block_start", at_block("content_block", empty_block(piece)));
    }
    if (piece.kind != Kind::kCallBegin) out += delta(piece);
    return out;
  }

  std::string finish_choice(uint32_t, const Finish& finish) override {
    finish_ = finish;
    return close_block();
  }

  std::string end_stream(const Usage& usage) override {
    boost::json::object delta, out;
    put_stop(delta, finish_);
    out["delta"] = std::move(delta);
    out["usage"] = message_usage(usage);
    out["timings"] = timings_json(usage);
    return event("message_delta", std::move(out)) + event("message_stop", {});
  }

  std::string fail_stream(const ApiError& error) override {
    return sse_event("error", error_json(error, Dialect::kAnthropic));
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) const override {
    boost::json::array content;
    uint32_t calls = 0;
    for (const AnswerBlock& block : choices.front().blocks) {
      if (block.kind == Kind::kReasoning) {
        content.push_back(thinking_block(block.text, kSignature));
      } else if (block.kind == Kind::kContent) {
        content.push_back(text_block(block.text));
      } else {
        content.push_back(
            use_block(calls++, block.name, parse_body(block.text).value_or(boost::json::object())));
      }
    }
    boost::json::object out = message(std::move(content));
    put_stop(out, choices.front().finish);
    out["usage"] = message_usage(usage);
    out["timings"] = timings_json(usage);
    return to_json(out);
  }

 private:
  static std::string event(std::string_view type, boost::json::object members) {
    boost::json::object out;
    out["type"] = type;
    for (auto& member : members) out[member.key()] = std::move(member.value());
    return sse_event(type, to_json(out));
  }

  boost::json::object message(boost::json::array content) const {
    boost::json::object out;
    out["id"] = identity_.id;
    out["type"] = "message";
    out["role"] = "assistant";
    out["model"] = identity_.model;
    out["content"] = std::move(content);
    return out;
  }

  boost::json::object use_block(uint32_t call, std::string_view name, boost::json::object input) const {
    boost::json::object out;
    out["type"] = "tool_use";
    out["id"] = fmt::format("toolu_{}_{}", identity_.request_id, call);
    out["name"] = name;
    out["input"] = std::move(input);
    return out;
  }

  boost::json::object empty_block(const AnswerPiece& first) const {
    if (first.kind == Kind::kReasoning) return thinking_block("", "");
    if (first.kind == Kind::kContent) return text_block("");
    return use_block(first.call, first.text, {});
  }

  boost::json::object at_block(std::string_view name, boost::json::object value) const {
    boost::json::object out;
    out["index"] = block_;
    out[name] = std::move(value);
    return out;
  }

  std::string block_delta(std::string_view type, std::string_view member, std::string_view text) const {
    boost::json::object change;
    change["type"] = type;
    change[member] = text;
    return event("content_block_delta", at_block("delta", std::move(change)));
  }

  std::string delta(const AnswerPiece& piece) const {
    if (piece.kind == Kind::kReasoning) return block_delta("thinking_delta", "thinking", piece.text);
    if (piece.kind == Kind::kContent) return block_delta("text_delta", "text", piece.text);
    return block_delta("input_json_delta", "partial_json", piece.text);
  }

  std::string close_block() {
    if (!open_) return {};
    std::string out;
    if (open_ == Kind::kReasoning) out = block_delta("signature_delta", "signature", kSignature);
    boost::json::object stop;
    stop["index"] = block_++;
    open_.reset();
    return out + event("content_block_stop", std::move(stop));
  }

  std::optional<Kind> open_;  // the block that deltas go into: kReasoning, kContent or kCallBegin
  uint32_t block_ = 0;        // its index, or that of the next one
  Finish finish_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_messages_format(AnswerIdentity identity) {
  return std::make_unique<MessagesFormat>(std::move(identity));
}

}  // namespace strata::gateway
