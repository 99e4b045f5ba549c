#pragma once
// How an answer looks in each dialect: the chunks of a stream and the whole response, as JSON text on one
// line. Pure.

#include <boost/json/object.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/engine/engine_client.h"
#include "gateway/generation/answer.h"

namespace strata::gateway {

struct AnswerIdentity {
  std::string id;       // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;  // Unix time in seconds
  std::string model;    // as the client gets it back
  std::string fingerprint;
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t reasoning_tokens = 0;
};

// Why a choice ended. detail is set only when the reason alone would mislead: "ended_in_thinking",
// "loop_guard" (rules A2, A5).
struct Finish {
  std::string reason = {};  // "stop", "length"
  std::string detail = {};
  std::optional<boost::json::object> reuse = {};  // ReuseReport::to_json(), where it was asked for
};

struct Choice {
  std::string content = {};
  std::string reasoning = {};
  std::vector<TokenScore> scores = {};
  Finish finish = {};
};

class AnswerFormat {
 public:
  explicit AnswerFormat(AnswerIdentity identity) : identity_(std::move(identity)) {}
  virtual ~AnswerFormat() = default;

  // What a stream says before the first token of a choice; empty: nothing.
  virtual std::string begin_chunk(uint32_t choice) const = 0;
  virtual std::string piece_chunk(uint32_t choice, const AnswerPiece& piece) = 0;
  virtual std::string finish_chunk(uint32_t choice, const Finish& finish) const = 0;
  virtual std::string usage_chunk(const Usage& usage) const = 0;
  virtual std::string progress_chunk(uint32_t choice, const PromptProgress& progress,
                                     uint64_t time_ms) const = 0;
  virtual std::string whole(const std::vector<Choice>& choices, const Usage& usage) const = 0;

 protected:
  AnswerIdentity identity_;
};

struct FormatOptions {
  bool scores = false;  // log probabilities were asked for
};
std::unique_ptr<AnswerFormat> make_chat_format(AnswerIdentity identity, FormatOptions options);
std::unique_ptr<AnswerFormat> make_completion_format(AnswerIdentity identity, FormatOptions options);

}  // namespace strata::gateway
