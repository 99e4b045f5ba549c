#pragma once
// POST /tokenize and /detokenize in llama.cpp's forms: text to token ids and back.

#include <boost/json/object.hpp>
#include <string>

#include "gateway/api/api_error.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

// {"content", "parse_special" (true), "with_pieces" (false), "add_special"} -> {"tokens": [...]}. content: a
// string, or an array of strings and ids. These models put no token in front of a text, so add_special
// changes nothing. With pieces: {"id", "piece"}, the piece as text or, where it is none, as bytes.
ApiResult<std::string> tokenize(const tokenizer::Tokenizer& tokenizer, const boost::json::object& body);
// {"tokens": [...]} -> {"content"}
ApiResult<std::string> detokenize(const tokenizer::Tokenizer& tokenizer, const boost::json::object& body);

}  // namespace strata::gateway
