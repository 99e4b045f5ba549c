#pragma once
// The items of /v1/responses: what `input` holds and what a response's output is made of. Here they become
// the messages that templates know. Reasoning, text and calls that follow each other are one turn of the
// assistant, so a conversation that comes back is rendered as it was written.

#include <boost/json/array.hpp>
#include <map>
#include <string>
#include <vector>

#include "gateway/api/field_reader.h"
#include "gateway/api/messages.h"

namespace strata::gateway {

struct ResponseInput {
  boost::json::array items = {};             // every one has a type and an id
  std::vector<std::string> references = {};  // ids that item_reference items name

  // Puts what they refer to in their place.
  void resolve(const std::map<std::string, boost::json::object>& referenced);
};

// Of the field `input`: a string or an array of items. serial: the ids of items without one are
// KIND_<serial>_i<place>. Faults go to `fields`.
ResponseInput read_response_input(FieldReader& fields, std::string_view serial);

struct ItemMessages {
  Messages messages = {};
  std::vector<std::string> warnings = {};  // about what was left out
};

// instructions: come first, together with the system messages that the items begin with. Errors name the
// item: input[2].content. past: items of the responses that this one goes on from.
ApiResult<ItemMessages> response_messages(std::string_view instructions, const boost::json::array& past,
                                          const boost::json::array& input);

// What a reasoning item carries for clients that send back nothing but this (include:
// reasoning.encrypted_content). Not encrypted: it is only told apart from what other servers wrote.
std::string sealed_reasoning(std::string_view text);

}  // namespace strata::gateway
