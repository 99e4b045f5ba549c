#include "gateway/generation/stop_matcher.h"

#include <algorithm>

namespace strata::gateway {

namespace {

// Length of the longest end of `text` with which `stop` begins, without being all of it.
std::size_t partial_match(std::string_view text, std::string_view stop) {
  std::size_t length = std::min(text.size(), stop.size() - 1);
  while (length > 0 && text.substr(text.size() - length) != stop.substr(0, length)) --length;
  return length;
}

}  // namespace

std::string StopMatcher::push(std::string_view text) {
  if (matched()) return {};
  if (stops_.empty()) return std::string(text);
  held_ += text;

  std::size_t first_begin = std::string::npos, first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    std::size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    std::size_t end = begin + stop.size();
    if (end < first_end || (end == first_end && begin < first_begin)) {
      first_begin = begin;
      first_end = end;
      match_ = stop;
    }
  }
  if (first_end != std::string::npos) {
    std::string shown = held_.substr(0, first_begin);
    held_.clear();
    return shown;
  }

  std::size_t keep = 0;
  for (const std::string& stop : stops_) keep = std::max(keep, partial_match(held_, stop));
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::flush() {
  std::string shown;
  if (!matched()) shown.swap(held_);
  return shown;
}

}  // namespace strata::gateway
