#include "services/cli/chat_session.h"

#include <boost/json.hpp>
#include <chrono>

namespace strata::cli {

namespace json = boost::json;

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

const json::value* find(const json::value& value, std::string_view key) {
  const json::object* object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(json::string_view(key.data(), key.size()));
}

std::string string_at(const json::value& value, std::string_view key) {
  const json::value* found = find(value, key);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : "";
}

uint64_t count_at(const json::value& value, std::string_view key) {
  const json::value* found = find(value, key);
  json::error_code error;
  uint64_t count = found != nullptr && found->is_number() ? found->to_number<uint64_t>(error) : 0;
  return error ? 0 : count;
}

}  // namespace

void EventReader::feed(std::string_view bytes) {
  for (char c : bytes) {
    if (c != '\n') {
      line_ += c;
      continue;
    }
    if (line_.ends_with('\r')) line_.pop_back();
    if (line_.empty() && !data_.empty()) {
      data_.pop_back();  // the newline behind the last line
      on_event_(data_);
      data_.clear();
    } else if (line_.starts_with("data:")) {
      data_ += line_.substr(line_.starts_with("data: ") ? 6 : 5) + '\n';
    }
    line_.clear();
  }
}

std::string error_text(const std::string& body) {
  constexpr std::size_t kShown = 200;
  boost::system::error_code error;
  json::value parsed = json::parse(body, error);
  if (!error) {
    if (const json::value* found = find(parsed, "error")) {
      if (std::string message = string_at(*found, "message"); !message.empty()) return printable(message);
    }
  }
  return printable(body.substr(0, kShown));
}

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto c = static_cast<unsigned char>(text[i]);
    bool c1 = c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c1) {
      ++i;
    } else if ((c >= 0x20 && c != 0x7F) || c == '\n' || c == '\t') {
      out += text[i];
    }
  }
  return out;
}

ChatSession::ChatSession(Url url, ChatOptions options) : url_(std::move(url)), options_(std::move(options)) {}

std::string ChatSession::body() const {
  json::array messages;
  auto add = [&](const std::string& role, const std::string& content) {
    json::object message;
    message["role"] = role;
    message["content"] = content;
    messages.push_back(std::move(message));
  };
  if (!options_.system.empty()) add("system", options_.system);
  for (const Message& turn : turns_) add(turn.role, turn.content);
  json::object request;
  request["model"] = "default";
  request["messages"] = std::move(messages);
  request["stream"] = true;
  request["stream_options"] = json::object{{"include_usage", true}};
  if (options_.temperature) request["temperature"] = *options_.temperature;
  if (options_.top_p) request["top_p"] = *options_.top_p;
  if (options_.seed) request["seed"] = *options_.seed;
  if (options_.max_tokens > 0) request["max_tokens"] = options_.max_tokens;
  return json::serialize(request);
}

// What the events of one answer add up to.
struct ChatSession::Answer {
  const std::function<void(Piece)>& on_piece;
  Clock::time_point asked = Clock::now();
  Clock::time_point first{};
  std::string text = {};
  std::string fault = {};
  ChatUsage usage = {};

  void on_event(const std::string& data) {
    if (data == "[DONE]") return;
    boost::system::error_code error;
    json::value chunk = json::parse(data, error);
    if (error) return;
    if (find(chunk, "error") != nullptr) fault = error_text(data);
    if (const json::value* counts = find(chunk, "usage"); counts != nullptr && counts->is_object()) {
      usage.prompt_tokens = count_at(*counts, "prompt_tokens");
      usage.answer_tokens = count_at(*counts, "completion_tokens");
    }
    const json::value* choices = find(chunk, "choices");
    if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return;
    const json::value* delta = find(choices->get_array()[0], "delta");
    if (delta == nullptr) return;
    take(string_at(*delta, "reasoning_content"), true);
    take(string_at(*delta, "content"), false);
  }

  void take(const std::string& piece, bool reasoning) {
    if (piece.empty()) return;
    if (first == Clock::time_point{}) first = Clock::now();
    if (!reasoning) text += piece;
    std::string shown = printable(piece);
    if (!shown.empty()) on_piece({shown, reasoning});
  }
};

Result<ChatUsage> ChatSession::ask(const std::string& prompt, const std::function<void(Piece)>& on_piece,
                                   const std::atomic<bool>* cancelled) {
  turns_.push_back({"user", prompt});
  Answer answer{.on_piece = on_piece};
  EventReader events([&](const std::string& data) { answer.on_event(data); });
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.body = body();
  request.cancelled = cancelled;
  auto response = http_request(url_, request, [&](std::string_view piece) { events.feed(piece); });

  Status status;
  if (!response) {
    status = response.error();
  } else if (response->status != 200) {
    status = fail(Code::kUnavailable, "{} (HTTP {})", error_text(response->body), response->status);
  } else if (!answer.fault.empty()) {
    status = fail(Code::kUnavailable, "{}", answer.fault);
  }
  if (status.ok() || status.code() == Code::kCancelled) {
    turns_.push_back({"assistant", answer.text});
  } else {
    turns_.pop_back();
  }
  if (!status.ok()) return tl::unexpected(status);
  Clock::time_point end = Clock::now();
  if (answer.first == Clock::time_point{}) answer.first = end;
  answer.usage.first_token_seconds = seconds(answer.first - answer.asked);
  answer.usage.answer_seconds = seconds(end - answer.first);
  return answer.usage;
}

}  // namespace strata::cli
