#pragma once
// What the dialects' formats share.

#include <boost/json/object.hpp>

#include "gateway/generation/answer_format.h"

namespace strata::gateway {

// {"id", "object", "created", "model", "system_fingerprint"}
boost::json::object answer_envelope(const AnswerIdentity& identity, std::string_view object);
boost::json::object usage_json(const Usage& usage);
boost::json::object progress_json(const PromptProgress& progress, uint64_t time_ms);
// The chunk that holds the usage and no choice, and the one that says how far the prompt is read; `object` as
// in the envelope.
std::string usage_chunk_text(const AnswerIdentity& identity, std::string_view object, const Usage& usage);
std::string progress_chunk_text(const AnswerIdentity& identity, std::string_view object,
                                boost::json::object choice, const PromptProgress& progress, uint64_t time_ms);
// A float as JSON has to print it: the shortest decimal that reads back as the same float.
boost::json::value float_json(float value);
// finish_reason; finish_detail and reuse where there are any.
void put_finish(boost::json::object& choice, const Finish& finish);

}  // namespace strata::gateway
