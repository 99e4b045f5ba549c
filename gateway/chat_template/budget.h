#pragma once
// What one rendering may cost. One step is about one evaluated expression; text counts by the byte.

#include <cstddef>
#include <cstdint>

#include "gateway/chat_template/error.h"

namespace strata::chat_template {

// Real templates take some hundred steps per message. A step is 50 to 200 ns, so the base allowance is about
// half a second; it also bounds the memory, as everything that is made costs steps.
inline constexpr uint64_t kStepsMax = 3'000'000;
inline constexpr uint64_t kStepsPerObject = 8;
inline constexpr uint64_t kBytesCopiedPerStep = 64;  // or searched
inline constexpr uint64_t kBytesWalkedPerStep = 8;   // character by character
// For large conversations, on top.
inline constexpr uint64_t kStepsPerInputByte = 2;
// No string, the prompt included, gets longer than this and four times the request.
inline constexpr uint64_t kTextBytesMax = uint64_t{16} << 20;
inline constexpr uint64_t kTextPerInputByte = 4;
// Nesting of expressions, statements, macro calls and values. One level takes a few hundred bytes of stack.
inline constexpr uint32_t kDepthMax = 400;
inline constexpr std::size_t kSourceBytesMax = std::size_t{1} << 20;

class Budget {
 public:
  explicit Budget(uint64_t input_bytes)
      : steps_left_(kStepsMax + kStepsPerInputByte * input_bytes),
        text_bytes_max_(kTextBytesMax + kTextPerInputByte * input_bytes) {}

  void step(uint64_t count = 1) {
    if (count > steps_left_) {
      throw TemplateError{Code::kResourceExhausted, "the template takes too many steps", 0};
    }
    steps_left_ -= count;
  }
  // So many bytes are copied or searched.
  void copy(uint64_t bytes) { step(1 + bytes / kBytesCopiedPerStep); }
  // So many bytes are looked at character by character.
  void walk(uint64_t bytes) { step(1 + bytes / kBytesWalkedPerStep); }
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
