#pragma once
// Text that remembers, for every byte, whether the chat template wrote it or a request did. Only template
// text may become special tokens (rule A7): a request that contains "<|im_end|>" or "<tool_call>" gets plain
// text tokens. BPE still runs across the seams, as it would over the plain string.

#include <string>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

enum class Origin : unsigned char {
  kTemplate,  // literals of the template and values that the engine itself made
  kRequest,   // anything that came over HTTP
};

class MarkedText {
 public:
  MarkedText() = default;
  MarkedText(std::string_view text, Origin origin) { append(text, origin); }

  void append(std::string_view text, Origin origin);
  void append(const MarkedText& other) { append(other, 0, other.text_.size()); }
  void append(const MarkedText& other, std::size_t begin, std::size_t end);  // bytes [begin, end)
  MarkedText slice(std::size_t begin, std::size_t end) const;

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  std::size_t size() const { return text_.size(); }

  // Maximal runs of one origin, ascending, covering [0, size()).
  struct Run {
    std::size_t begin = 0;
    std::size_t end = 0;
    Origin origin = Origin::kTemplate;
  };
  const std::vector<Run>& runs() const { return runs_; }
  Origin origin_at(std::size_t byte) const;

 private:
  std::string text_;
  std::vector<Run> runs_;
};

}  // namespace strata::tokenizer
