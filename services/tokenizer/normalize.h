#pragma once
// Unicode NFC, the normaliser of the Qwen tokenizers. Work is bounded by n log n, also for hostile runs of
// combining marks (utf8proc's own mapping sorts them with a bubble sort: a megabyte of alternating marks
// would take hours).

#include <string>
#include <string_view>

namespace strata::tokenizer {

// text must be valid UTF-8. True: it is in NFC for certain, without a look at the tables.
bool is_plainly_nfc(std::string_view text);

// text must be valid UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace strata::tokenizer
