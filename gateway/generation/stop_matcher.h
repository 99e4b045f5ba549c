#pragma once
// Ends an answer at a stop string, which may arrive in any number of pieces. Text that could still become the
// beginning of a stop string is held back. The stop string that is complete first wins (of two that end
// together, the one that began first), so the result does not depend on how the text was cut into pieces
// (rule B26).

#include <string>
#include <string_view>
#include <vector>

namespace strata::gateway {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes the next piece, gives what can be shown now. After a match nothing more comes out.
  std::string push(std::string_view text);
  // The answer ended by itself: what was held back is text after all.
  std::string flush();
  bool matched() const { return !match_.empty(); }
  const std::string& match() const { return match_; }  // empty: none yet
  std::size_t held_bytes() const { return held_.size(); }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string match_;  // the stop string that ended the answer
};

}  // namespace strata::gateway
