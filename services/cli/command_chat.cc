// strata chat: a conversation in the terminal, or one prompt per line from a pipe.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "services/cli/chat_session.h"
#include "services/cli/cluster_client.h"
#include "services/cli/commands.h"

namespace strata::cli {

namespace {

constexpr std::string_view kHelp =
    "/help            this list\n"
    "/system TEXT     the system prompt from now on (without TEXT: none); begins anew\n"
    "/reset           forgets the conversation\n"
    "/stats           tokens and speed of the last answer and of all\n"
    "/exit            leaves, as Ctrl-D does\n"
    "Ctrl-C stops an answer.\n";

std::atomic<bool> interrupted{false};

void interrupt(int) { interrupted.store(true); }

// The next line of standard input; nullopt at its end. Ctrl-C gives an empty line.
std::optional<std::string> read_line(bool terminal) {
  if (terminal) {
    std::fputs("> ", stdout);
    std::fflush(stdout);
  }
  interrupted.store(false);
  char* line = nullptr;
  std::size_t capacity = 0;
  ssize_t length = ::getline(&line, &capacity, stdin);
  std::string text(line != nullptr && length > 0 ? line : "",
                   length > 0 ? static_cast<std::size_t>(length) : 0);
  std::free(line);
  if (length < 0 && interrupted.load() && std::ferror(stdin) != 0) {
    std::clearerr(stdin);
    std::fputs("\n(/exit or Ctrl-D leaves)\n", stdout);
    return "";
  }
  if (length < 0) return std::nullopt;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

class Chat {
 public:
  Chat(ChatSession session, bool terminal) : session_(std::move(session)), terminal_(terminal) {}

  int run() {
    if (terminal_) std::fputs("Ask something; /help lists the commands.\n", stdout);
    while (auto line = read_line(terminal_)) {
      if (line->empty()) continue;
      if (line->starts_with('/')) {
        if (!command(*line)) break;
      } else {
        answer(*line);
      }
    }
    if (terminal_) std::fputs("\n", stdout);
    return failed_ ? kExitFailed : 0;
  }

 private:
  // False: leave.
  bool command(const std::string& line) {
    std::string word = line.substr(0, line.find(' '));
    std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
    if (word == "/exit" || word == "/quit") return false;
    if (word == "/help") {
      std::fwrite(kHelp.data(), 1, kHelp.size(), stdout);
    } else if (word == "/reset") {
      session_.reset();
    } else if (word == "/system") {
      session_.set_system(rest);
      session_.reset();
    } else if (word == "/stats") {
      show_stats();
    } else {
      fmt::print("no command {}; /help lists them\n", printable(word));
    }
    std::fflush(stdout);
    return true;
  }

  void answer(const std::string& prompt) {
    interrupted.store(false);
    bool reasoning = false;
    auto show = [&](ChatSession::Piece piece) {
      // Thinking is dim on a terminal and left out of a pipe.
      if (piece.reasoning && !terminal_) return;
      if (terminal_ && piece.reasoning != reasoning)
        std::fputs(piece.reasoning ? "\x1b[2m" : "\x1b[0m\n", stdout);
      reasoning = piece.reasoning;
      std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
      std::fflush(stdout);
    };
    auto usage = session_.ask(prompt, show, &interrupted);
    std::fputs(terminal_ && reasoning ? "\x1b[0m\n" : "\n", stdout);
    std::fflush(stdout);
    if (usage) {
      last_ = *usage;
      total_.prompt_tokens += usage->prompt_tokens;
      total_.answer_tokens += usage->answer_tokens;
    } else if (usage.error().code() == Code::kCancelled) {
      std::fputs("(stopped)\n", stdout);
    } else {
      failed_ = true;
      std::fprintf(stderr, "strata chat: %s\n", usage.error().message().c_str());
    }
  }

  void show_stats() const {
    fmt::print(
        "last answer: {} prompt tokens, {} answer tokens, first after {:.2f} s, then {:.1f} tokens/s\n",
        last_.prompt_tokens, last_.answer_tokens, last_.first_token_seconds, last_.tokens_per_second());
    fmt::print("all:         {} prompt tokens, {} answer tokens, {} turns in memory\n", total_.prompt_tokens,
               total_.answer_tokens, session_.turns());
  }

  ChatSession session_;
  bool terminal_;
  bool failed_ = false;
  ChatUsage last_, total_;
};

}  // namespace

int run_chat(const ChatOptions& options) {
  auto url = api_url(options.url, options.run_dir);
  if (!url) {
    const bool fault = url.error().code() == Code::kInvalidArgument;
    return report(url.error(), fault ? kExitFault : exit_code_of(url.error()));
  }
  bool terminal = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
  if (terminal) {
    struct sigaction action{};
    action.sa_handler = interrupt;  // without SA_RESTART, so that a waiting read returns
    ::sigaction(SIGINT, &action, nullptr);
  }
  return Chat(ChatSession(*url, options), terminal).run();
}

}  // namespace strata::cli
