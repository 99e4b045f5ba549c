#include "services/tokenizer/marked_text.h"

#include <algorithm>

#include "services/base/check.h"

namespace strata::tokenizer {

void MarkedText::append(std::string_view text, Origin origin) {
  if (text.empty()) return;
  text_.append(text);
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = text_.size();
  } else {
    runs_.push_back({text_.size() - text.size(), text_.size(), origin});
  }
}

void MarkedText::append(const MarkedText& other, std::size_t begin, std::size_t end) {
  CHECK(begin <= end && end <= other.size(), "[{}, {}) of {} bytes", begin, end, other.size());
  if (&other == this) {  // appending would grow the runs that are being read
    const MarkedText copy = other;
    append(copy, begin, end);
    return;
  }
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](std::size_t byte, const Run& candidate) { return byte < candidate.end; });
  for (std::size_t at = begin; at < end; ++run) {
    const std::size_t stop = std::min(end, run->end);
    append(std::string_view(other.text_).substr(at, stop - at), run->origin);
    at = stop;
  }
}

MarkedText MarkedText::slice(std::size_t begin, std::size_t end) const {
  MarkedText part;
  part.append(*this, begin, end);
  return part;
}

Origin MarkedText::origin_at(std::size_t byte) const {
  CHECK(byte < size(), "byte {} of {}", byte, size());
  return std::upper_bound(runs_.begin(), runs_.end(), byte,
                          [](std::size_t at, const Run& run) { return at < run.end; })
      ->origin;
}

}  // namespace strata::tokenizer
