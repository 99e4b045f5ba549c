#include "gateway/generation/responses_format.h"

#include <fmt/format.h>

#include <optional>

#include "gateway/api/json_text.h"
#include "gateway/api/response_items.h"
#include "gateway/generation/openai_format.h"
#include "gateway/generation/sse.h"

namespace strata::gateway {

namespace {

using Kind = AnswerPiece::Kind;

boost::json::object response_usage(const Usage& usage) {
  boost::json::object input, output, out;
  input["cached_tokens"] = usage.cached_tokens;
  output["reasoning_tokens"] = usage.reasoning_tokens;
  out["input_tokens"] = usage.prompt_tokens;
  out["input_tokens_details"] = std::move(input);
  out["output_tokens"] = usage.completion_tokens;
  out["output_tokens_details"] = std::move(output);
  out["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  return out;
}

std::string_view status_of(const Finish& finish) {
  return finish.reason == Finish::Reason::kLength ? "incomplete" : "completed";
}

// The text of a free-form call, out of its arguments. What the model wrote otherwise is shown as it is.
std::string free_text(const std::string& arguments) {
  auto parsed = parse_body(arguments);
  if (!parsed) return arguments;
  const boost::json::value* text = parsed->if_contains(kFreeFormParameter);
  return text != nullptr && text->is_string() ? std::string(text->get_string()) : arguments;
}

boost::json::object text_part(std::string_view text, boost::json::array scores) {
  boost::json::object part;
  part["type"] = "output_text";
  part["text"] = text;
  part["annotations"] = boost::json::array();
  part["logprobs"] = std::move(scores);
  return part;
}

boost::json::object reasoning_part(std::string_view text) {
  boost::json::object part;
  part["type"] = "reasoning_text";
  part["text"] = text;
  return part;
}

// One item of the output, so far.
struct Item {
  Kind kind = Kind::kContent;  // kReasoning, kContent or kCallBegin
  uint32_t index = 0;          // in the output
  uint32_t call = 0;           // number of the call in the answer
  std::string name = {};       // of a call, as the model knows it
  std::string text = {};       // of a call: its arguments
  boost::json::array scores = {};
};

class ResponsesFormat final : public AnswerFormat {
 public:
  ResponsesFormat(AnswerIdentity identity, ResponsesOptions options)
      : AnswerFormat(std::move(identity)), options_(std::move(options)) {}

  std::string begin_stream(const Usage&) override {
    streaming_ = true;
    std::string out = about_response("response.created", response("in_progress", {}));
    return out += keep_alive();
  }

  // Clients count events, so this is one (case 28).
  std::string queued(uint32_t) override { return keep_alive(); }
  std::string keep_alive() override {
    return about_response("response.in_progress", response("in_progress", done_));
  }

  std::string progress(uint32_t, const PromptProgress& progress, uint64_t time_ms) override {
    boost::json::object out;
    out["response"] = response("in_progress", done_);
    out["prompt_progress"] = progress_json(progress, time_ms);
    return event("response.in_progress", std::move(out));
  }

  std::string begin_choice(uint32_t) override { return {}; }

  std::string piece(uint32_t, const AnswerPiece& piece) override {
    if (piece.kind == Kind::kCallEnd) return close(piece.fault ? "incomplete" : "completed");
    if (piece.kind == Kind::kCallBegin) {
      std::string out = close("completed");
      return out += open({.kind = piece.kind, .call = piece.call, .name = piece.text});
    }
    if (piece.kind == Kind::kCallArguments) return add_arguments(piece.text);
    if (piece.text.empty() && piece.scores.empty()) return {};
    std::string out;
    if (!open_ || open_->kind != piece.kind) {
      out = close("completed");
      out += open({.kind = piece.kind});
    }
    return out += add_text(piece);
  }

  std::string finish_choice(uint32_t, const Finish& finish) override {
    finish_ = finish;
    std::string out = close(status_of(finish));
    if (needs_message(done_, finish)) {
      out += open({});
      out += close("completed");
    }
    return out;
  }

  std::string end_stream(const Usage& usage) override {
    return about_response(fmt::format("response.{}", status_of(finish_)), ended(done_, finish_, usage));
  }

  // What was begun is closed first: whoever puts the pieces together must not be left with half an item.
  std::string fail_stream(const ApiError& error) override {
    std::string out = close("incomplete");
    return out += about_response("response.failed", failed(error));
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) const override {
    return to_json(ended(items_of(choices.front()), choices.front().finish, usage));
  }

  std::string record(const std::vector<Choice>& choices, const Usage& usage) const override {
    return streaming_ ? to_json(ended(done_, finish_, usage)) : whole(choices, usage);
  }

  std::string record_unfinished(const ApiError* error) override {
    close("incomplete");
    return to_json(error == nullptr ? response("cancelled", done_) : failed(*error));
  }

  void not_kept() override {
    options_.echo["store"] = false;
    options_.warnings.emplace_back("the response could not be stored");
  }

 private:
  // ---- events: each has the next number, so they are made one after another, never inside one expression

  std::string event(std::string_view type, boost::json::object members) {
    boost::json::object out;
    out["type"] = type;
    out["sequence_number"] = sequence_++;
    for (auto& member : members) out[member.key()] = std::move(member.value());
    return sse_event(type, to_json(out));
  }

  std::string about_response(std::string_view type, boost::json::object response) {
    boost::json::object out;
    out["response"] = std::move(response);
    return event(type, std::move(out));
  }

  std::string about_item(std::string_view type, const Item& item, std::string_view status) {
    boost::json::object out;
    out["output_index"] = item.index;
    out["item"] = item_json(item, status);
    return event(type, std::move(out));
  }

  boost::json::object at(const Item& item) const {
    boost::json::object out;
    out["item_id"] = item_id(item);
    out["output_index"] = item.index;
    return out;
  }

  // With a place inside the item, which has one part only.
  boost::json::object at_part(const Item& item) const {
    boost::json::object out = at(item);
    out["content_index"] = 0;
    return out;
  }

  std::string about_part(std::string_view type, const Item& item) {
    boost::json::object out = at_part(item);
    out["part"] = part_of(item);
    return event(type, std::move(out));
  }

  std::string open(Item item) {
    item.index = static_cast<uint32_t>(done_.size());
    open_ = std::move(item);
    std::string out = about_item("response.output_item.added", *open_, "in_progress");
    if (open_->kind != Kind::kCallBegin) out += about_part("response.content_part.added", *open_);
    return out;
  }

  std::string add_text(const AnswerPiece& piece) {
    boost::json::object out = at_part(*open_);
    out["delta"] = piece.text;
    open_->text += piece.text;
    if (piece.kind == Kind::kReasoning) return event("response.reasoning_text.delta", std::move(out));
    boost::json::array scores;
    if (options_.scores) scores = scores_json(piece.scores);
    open_->scores.insert(open_->scores.end(), scores.begin(), scores.end());
    out["logprobs"] = std::move(scores);
    return event("response.output_text.delta", std::move(out));
  }

  // The text of a free-form call is known when its arguments are complete.
  std::string add_arguments(const std::string& text) {
    open_->text += text;
    if (text.empty() || tool_of(*open_).free_form) return {};
    boost::json::object out = at(*open_);
    out["delta"] = text;
    return event("response.function_call_arguments.delta", std::move(out));
  }

  std::string close(std::string_view status) {
    if (!open_) return {};
    const Item item = *std::exchange(open_, {});
    std::string out = item.kind == Kind::kCallBegin ? close_call(item) : close_part(item);
    out += about_item("response.output_item.done", item, status);
    done_.push_back(item_json(item, status));
    return out;
  }

  std::string close_part(const Item& item) {
    boost::json::object out = at_part(item);
    out["text"] = item.text;
    if (item.kind == Kind::kContent) out["logprobs"] = item.scores;
    std::string events =
        event(item.kind == Kind::kContent ? "response.output_text.done" : "response.reasoning_text.done",
              std::move(out));
    return events += about_part("response.content_part.done", item);
  }

  std::string close_call(const Item& item) {
    boost::json::object done = at(item);
    if (!tool_of(item).free_form) {
      done["name"] = tool_of(item).name;
      done["arguments"] = item.text;
      return event("response.function_call_arguments.done", std::move(done));
    }
    boost::json::object delta = at(item);
    const std::string text = free_text(item.text);
    delta["delta"] = text;
    done["input"] = text;
    std::string out;
    if (!text.empty()) out = event("response.custom_tool_call_input.delta", std::move(delta));
    return out += event("response.custom_tool_call_input.done", std::move(done));
  }

  // ---- items

  // A model may call what was not offered: then the client hears the name that the model wrote.
  ClientTool tool_of(const Item& item) const {
    const auto known = options_.tools.find(item.name);
    return known == options_.tools.end() ? ClientTool{.name = item.name} : known->second;
  }

  std::string item_id(const Item& item) const {
    std::string_view kind = "msg";
    if (item.kind == Kind::kReasoning) kind = "rs";
    if (item.kind == Kind::kCallBegin) kind = tool_of(item).free_form ? "ctc" : "fc";
    return fmt::format("{}_{}_{}", kind, identity_.request_id, item.index);
  }

  boost::json::object part_of(const Item& item) const {
    return item.kind == Kind::kReasoning ? reasoning_part(item.text) : text_part(item.text, item.scores);
  }

  // status in_progress: before its first piece.
  boost::json::object item_json(const Item& item, std::string_view status) const {
    boost::json::object out;
    out["id"] = item_id(item);
    const bool begun = status != "in_progress";
    boost::json::array content;
    if (begun && item.kind != Kind::kCallBegin) content.push_back(part_of(item));
    if (item.kind == Kind::kReasoning) {
      out["type"] = "reasoning";
      out["summary"] = boost::json::array();
      out["content"] = std::move(content);
      if (options_.sealed_reasoning)
        out["encrypted_content"] = begun ? boost::json::value(sealed_reasoning(item.text)) : nullptr;
    } else if (item.kind == Kind::kContent) {
      out["type"] = "message";
      out["role"] = "assistant";
      out["content"] = std::move(content);
    } else {
      put_call(out, item);
    }
    out["status"] = status;
    return out;
  }

  void put_call(boost::json::object& out, const Item& item) const {
    const ClientTool tool = tool_of(item);
    out["type"] = tool.free_form ? "custom_tool_call" : "function_call";
    out["call_id"] = fmt::format("call_{}_{}", identity_.request_id, item.call);
    out["name"] = tool.name;
    if (!tool.name_space.empty()) out["namespace"] = tool.name_space;
    if (tool.free_form) {
      out["input"] = item.text.empty() ? std::string() : free_text(item.text);
    } else {
      out["arguments"] = item.text;
    }
  }

  boost::json::array items_of(const Choice& choice) const {
    boost::json::array out;
    Item item;
    bool scored = false;
    for (const AnswerBlock& block : choice.blocks) {
      const bool last = &block == &choice.blocks.back();
      item.kind = block.kind;
      item.index = static_cast<uint32_t>(out.size());
      item.name = block.name;
      item.text = block.text;
      item.scores.clear();
      // They are the whole answer's; where that has several texts, they stand with the first.
      if (options_.scores && block.kind == Kind::kContent && !std::exchange(scored, true))
        item.scores = scores_json(choice.scores);
      const bool is_call = block.kind == Kind::kCallBegin;
      out.push_back(item_json(item, last && !is_call ? status_of(choice.finish) : "completed"));
      if (is_call) ++item.call;
    }
    if (needs_message(out, choice.finish))
      out.push_back(item_json({.index = static_cast<uint32_t>(out.size())}, "completed"));
    return out;
  }

  // A complete answer ends with something: clients look for the last message.
  static bool needs_message(const boost::json::array& items, const Finish& finish) {
    if (finish.reason == Finish::Reason::kLength) return false;
    return items.empty() || items.back().at("type") == "reasoning";
  }

  // ---- the response

  boost::json::object response(std::string_view status, boost::json::array output) const {
    boost::json::object out;
    out["id"] = identity_.id;
    out["object"] = "response";
    out["created_at"] = identity_.created;
    out["status"] = status;
    out["background"] = false;
    out["error"] = nullptr;
    out["incomplete_details"] = nullptr;
    out["model"] = identity_.model;
    for (const auto& member : options_.echo) out[member.key()] = member.value();
    out["output"] = std::move(output);
    out["usage"] = nullptr;
    out["system_fingerprint"] = identity_.fingerprint;
    if (!options_.warnings.empty())
      out["warnings"] = boost::json::array(options_.warnings.begin(), options_.warnings.end());
    return out;
  }

  boost::json::object failed(const ApiError& error) const {
    boost::json::object out = response("failed", done_), reason;
    reason["code"] = error.code.value_or(error.type);
    reason["message"] = error.message;
    out["error"] = std::move(reason);
    return out;
  }

  boost::json::object ended(boost::json::array output, const Finish& finish, const Usage& usage) const {
    boost::json::object out = response(status_of(finish), std::move(output));
    if (finish.reason == Finish::Reason::kLength)
      out["incomplete_details"] = boost::json::object{{"reason", "max_output_tokens"}};
    out["usage"] = response_usage(usage);
    out["timings"] = timings_json(usage);
    if (!finish.detail.empty()) out["finish_detail"] = finish.detail;
    if (finish.reuse) out["reuse"] = *finish.reuse;
    return out;
  }

  ResponsesOptions options_;
  bool streaming_ = false;
  uint64_t sequence_ = 0;
  boost::json::array done_;   // items of the stream that are complete
  std::optional<Item> open_;  // the one that deltas go into
  Finish finish_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_responses_format(AnswerIdentity identity, ResponsesOptions options) {
  return std::make_unique<ResponsesFormat>(std::move(identity), std::move(options));
}

}  // namespace strata::gateway
