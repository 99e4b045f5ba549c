#pragma once
// How an answer looks in each dialect: the events of a stream, bytes as they go over the wire, and the whole
// response. Every dialect is printed from the same pieces. Pure.

#include <boost/json/object.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/api/api_error.h"
#include "gateway/engine/engine_client.h"
#include "gateway/generation/answer_piece.h"
#include "gateway/generation/timings.h"

namespace strata::gateway {

struct AnswerIdentity {
  std::string id = {};          // "chatcmpl-...", "cmpl-...", "msg_..."
  std::string request_id = {};  // the part of it that no other answer has, for ids of what is inside
  int64_t created = 0;          // Unix time in seconds
  std::string model = {};       // as the client gets it back
  std::string fingerprint = {};
};

// What a request took.
struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;          // of the prompt, reused
  uint32_t cache_creation_tokens = 0;  // of the prompt, read and kept for later requests
  uint32_t reasoning_tokens = 0;       // of the completion
  Timings timings = {};
};
// The `timings` of an answer, the same in every dialect.
boost::json::object timings_json(const Usage& usage);

// Why a choice ended.
struct Finish {
  enum class Reason { kStop, kStopString, kLength, kToolCalls };
  Reason reason = Reason::kStop;
  std::string stop_string = {};  // with kStopString
  // Set only when the reason alone would mislead: "ended_in_thinking", "loop_guard" (rules A2, A5),
  // "malformed_tool_call".
  std::string detail = {};
  std::optional<boost::json::object> reuse = {};  // ReuseReport::to_json(), where it was asked for
  std::optional<Usage> request = {};              // of all choices, with the last one
};

// Pieces of one kind that followed each other; a call is one block.
struct AnswerBlock {
  AnswerPiece::Kind kind = AnswerPiece::Kind::kContent;  // kReasoning, kContent or kCallBegin
  std::string text = {};                                 // of a call: the JSON text of its arguments
  std::string name = {};                                 // of a call: the function
};

// A whole answer. Calls that were cut off are not in it (rule B24), malformed ones are text.
struct Choice {
  std::vector<AnswerBlock> blocks = {};
  std::vector<TokenScore> scores = {};
  Finish finish = {};

  void add(AnswerPiece piece);
  std::string text(AnswerPiece::Kind kind) const;  // of all blocks of this kind
};

class AnswerFormat {
 public:
  explicit AnswerFormat(AnswerIdentity identity) : identity_(std::move(identity)) {}
  virtual ~AnswerFormat() = default;

  // The first bytes of a stream, before anything else is known but the size of the prompts.
  virtual std::string begin_stream(const Usage& prompts) = 0;
  virtual std::string queued(uint32_t position) = 0;
  virtual std::string keep_alive() = 0;
  virtual std::string progress(uint32_t choice, const PromptProgress& progress, uint64_t time_ms) = 0;
  // What a stream says before the first token of a choice, for each piece, and when the choice is over.
  virtual std::string begin_choice(uint32_t choice) = 0;
  virtual std::string piece(uint32_t choice, const AnswerPiece& piece) = 0;
  virtual std::string finish_choice(uint32_t choice, const Finish& finish) = 0;
  // The last bytes of a stream: after all choices, or instead of the rest of them.
  virtual std::string end_stream(const Usage& usage) = 0;
  virtual std::string fail_stream(const ApiError& error) = 0;
  // The body of a response that is no stream.
  virtual std::string whole(const std::vector<Choice>& choices, const Usage& usage) const = 0;
  // For dialects whose answers later requests may go on from: what has to be kept of this one, asked for just
  // before end_stream() or whole(). choices: of a response that is no stream.
  virtual std::string record(const std::vector<Choice>&, const Usage&) const { return {}; }
  // The same where a stream is over before its answer: error says why, null: the client has left. After
  // fail_stream(), if there was an error.
  virtual std::string record_unfinished(const ApiError*) { return {}; }
  // It could not be kept, and the answer has to say so.
  virtual void not_kept() {}

 protected:
  AnswerIdentity identity_;
};

struct FormatOptions {
  bool scores = false;         // log probabilities were asked for
  bool include_usage = false;  // a last chunk with the usage
};
std::unique_ptr<AnswerFormat> make_chat_format(AnswerIdentity identity, FormatOptions options);
std::unique_ptr<AnswerFormat> make_completion_format(AnswerIdentity identity, FormatOptions options);
// Anthropic's messages.
std::unique_ptr<AnswerFormat> make_messages_format(AnswerIdentity identity);

}  // namespace strata::gateway
