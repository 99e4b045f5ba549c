#pragma once
// What OpenAI's two completion dialects share: envelope, usage, finish reasons, the frame of a stream.

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string_view>

#include "gateway/generation/answer_format.h"

namespace strata::gateway {

class OpenAiFormat : public AnswerFormat {
 public:
  // chunk_object: the "object" of a chunk.
  OpenAiFormat(AnswerIdentity identity, FormatOptions options, std::string_view chunk_object)
      : AnswerFormat(std::move(identity)), options_(options), chunk_object_(chunk_object) {}

  std::string begin_stream(const Usage& prompts) override;
  std::string queued(uint32_t position) override;
  std::string keep_alive() override;
  std::string progress(uint32_t choice, const PromptProgress& progress, uint64_t time_ms) override;
  std::string end_stream(const Usage& usage) override;
  std::string fail_stream(const ApiError& error) override;

 protected:
  // A choice of a chunk that says nothing yet.
  virtual boost::json::object empty_choice(uint32_t choice) const = 0;

  // {"id", "object", "created", "model", "system_fingerprint"}
  boost::json::object envelope(std::string_view object) const;
  // A chunk with this choice, and as an event.
  boost::json::object with_choice(boost::json::object choice) const;
  std::string chunk(boost::json::object choice) const;
  // The same with what ended the choice, and with the timings if no other chunk will follow.
  std::string finish_chunk(boost::json::object choice, const Finish& finish) const;
  // Usage and timings of a whole response.
  static void put_usage(boost::json::object& out, const Usage& usage);

  FormatOptions options_;
  std::string_view chunk_object_;
};

boost::json::object usage_json(const Usage& usage);
// A float as JSON has to print it: the shortest decimal that reads back as the same float.
boost::json::value float_json(float value);
// {"total", "cached", "processed", "time_ms"}
boost::json::object progress_json(const PromptProgress& progress, uint64_t time_ms);
// [{"token", "logprob", "bytes", "top_logprobs"}, ...]
boost::json::array scores_json(const std::vector<TokenScore>& scores);
// finish_reason; finish_detail and reuse where there are any.
void put_finish(boost::json::object& choice, const Finish& finish);

}  // namespace strata::gateway
