#pragma once
// What one rendering may cost. One step is about one evaluated expression; text counts by the byte.

#include <cstddef>
#include <cstdint>

#include "gateway/chat_template/error.h"

namespace strata::chat_template {

// Real templates take some hundred steps per message. The base allowance is about a second of work.
inline constexpr uint64_t kStepsMax = 10'000'000;
inline constexpr uint64_t kBytesPerStep = 64;
inline constexpr uint64_t kStepsPerObject = 8;
// For large conversations: this many passes over the text of the request on top.
inline constexpr uint64_t kPassesOverInput = 16;
// No string, the prompt included, gets longer than this and four times the request.
inline constexpr uint64_t kTextBytesMax = uint64_t{16} << 20;
inline constexpr uint64_t kTextPerInputByte = 4;
// Nesting of expressions, statements, macro calls and values. One level takes a few hundred bytes of stack.
inline constexpr uint32_t kDepthMax = 400;
inline constexpr std::size_t kSourceBytesMax = std::size_t{1} << 20;

class Budget {
 public:
  explicit Budget(uint64_t input_bytes)
      : steps_left_(kStepsMax + input_bytes * kPassesOverInput / kBytesPerStep),
        text_bytes_max_(kTextBytesMax + kTextPerInputByte * input_bytes) {}

  void step(uint64_t count = 1) {
    if (count > steps_left_) {
      throw TemplateError{Code::kResourceExhausted, "the template takes too many steps", 0};
    }
    steps_left_ -= count;
  }
  // So many bytes are read or copied.
  void text(uint64_t bytes) { step(1 + bytes / kBytesPerStep); }
  // A string of so many bytes is made.
  void check_text_size(uint64_t bytes) const {
    if (bytes > text_bytes_max_) {
      throw TemplateError{Code::kResourceExhausted,
                          fmt::format("a text of more than {} bytes", text_bytes_max_), 0};
    }
  }

  void enter() {
    if (depth_ == kDepthMax) throw TemplateError{Code::kResourceExhausted, "nested too deeply", 0};
    ++depth_;
  }
  void leave() { --depth_; }

 private:
  uint64_t steps_left_;
  uint64_t text_bytes_max_;
  uint32_t depth_ = 0;
};

class DepthGuard {
 public:
  explicit DepthGuard(Budget& budget) : budget_(budget) { budget_.enter(); }
  ~DepthGuard() { budget_.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Budget& budget_;
};

}  // namespace strata::chat_template
