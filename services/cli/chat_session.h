#pragma once
// One conversation over the HTTP API: keeps the messages, streams the answers.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "services/cli/commands.h"
#include "services/cli/http_client.h"

namespace strata::cli {

// Server-sent events: calls on_event with the data of each, whatever pieces the bytes come in.
class EventReader {
 public:
  explicit EventReader(std::function<void(const std::string& data)> on_event)
      : on_event_(std::move(on_event)) {}
  void feed(std::string_view bytes);

 private:
  std::function<void(const std::string&)> on_event_;
  std::string line_, data_;
};

struct ChatUsage {
  uint64_t prompt_tokens = 0;
  uint64_t answer_tokens = 0;
  double first_token_seconds = 0;  // from the request to the first text
  double answer_seconds = 0;       // from the first text to the end
  // Tokens per second behind the first; 0 for answers of fewer than two.
  double tokens_per_second() const {
    return answer_tokens > 1 && answer_seconds > 0 ? static_cast<double>(answer_tokens - 1) / answer_seconds
                                                   : 0;
  }
};

class ChatSession {
 public:
  ChatSession(Url url, ChatOptions options);

  struct Piece {
    std::string_view text;
    bool reasoning = false;
  };
  // Sends the prompt with all before it. The answer's pieces are safe for a terminal: no control characters
  // but newline and tab. kCancelled: the flag was set; what had come until then stays part of the
  // conversation. After other errors the prompt is forgotten.
  Result<ChatUsage> ask(const std::string& prompt, const std::function<void(Piece)>& on_piece,
                        const std::atomic<bool>* cancelled);

  void reset() { turns_.clear(); }
  void set_system(std::string text) { options_.system = std::move(text); }
  const std::string& system() const { return options_.system; }
  std::size_t turns() const { return turns_.size() / 2; }

 private:
  struct Message {
    std::string role, content;
  };
  struct Answer;
  std::string body() const;

  Url url_;
  ChatOptions options_;
  std::vector<Message> turns_;
};

// The sentence in an OpenAI error object, or the start of a body that is none.
std::string error_text(const std::string& body);
// Text without control characters but newline and tab: an answer cannot move the cursor or set colours.
std::string printable(std::string_view text);

}  // namespace strata::cli
