#pragma once
// At which tokens of a chat's prompt other requests are likely to part from it: behind the system prompt and
// the tools (other chats of the same client), before the last user message (it is edited and sent again, and
// templates change what stands behind it when the next one comes), and wherever a message begins. States kept
// there are found again (rules C3, C4).
//
// Templates are programs, so nobody can say from the text where a message begins. What can be said exactly is
// what two conversations have in common: the prompt is compared with the prompt of the same conversation that
// goes on otherwise (the message in question replaced by another), rendered by the same template. The common
// text ends where the message begins, or a few bytes into what the template writes in front of it.
//
// A byte of the text is not yet a place between two tokens: a token may span it, and tokens in front of it
// may depend on what follows. So the landmark is put before the special token that opens the message, as in
// all families of templates that are trained with such tokens: what stands before a special token becomes the
// same tokens whatever stands behind it (special_places.h). Where a template has none there, the text up to
// the place is turned into tokens and the landmark is put behind the last token that is the same with and
// without its continuation.
//
// A landmark that is a little off never makes an answer wrong: a state is kept with its exact tokens, and is
// found only by prompts that begin with all of them.

#include <boost/json/array.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

// Positions count tokens in front; 0: there is none, or nothing stands before it.
struct PromptLandmarks {
  uint32_t system_end = 0;           // behind system prompt and tools
  uint32_t last_user = 0;            // before the last message of the user
  std::vector<uint32_t> turns = {};  // every place at which a message begins, the answer's included; rising
};

// The prompt of the same request with other messages; nothing: the template refuses them.
using RenderMessages = std::function<std::optional<tokenizer::MarkedText>(boost::json::array messages)>;

// messages: normalised (gateway/api/messages.h), as the prompt was made from. text: that prompt. tokens:
// tokenizer.encode(text). Work: two renderings, the first as short as the system prompt; no tokenization
// where the template opens its messages with special tokens.
PromptLandmarks prompt_landmarks(const tokenizer::Tokenizer& tokenizer, const boost::json::array& messages,
                                 const tokenizer::MarkedText& text, std::span<const int32_t> tokens,
                                 const RenderMessages& render);

}  // namespace strata::gateway
