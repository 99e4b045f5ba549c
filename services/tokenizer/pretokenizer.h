#pragma once
// Splits normalised text into the pieces that BPE may merge within (gguf-qwen4exp, section 4, step 3).
// Immutable after create(); any thread may call.

#include <memory>
#include <string_view>
#include <vector>

#include "services/base/status.h"

namespace strata::tokenizer {

class Pretokenizer {
 public:
  enum class Engine : unsigned char {
    kJit,  // machine code where the system grants the memory for it, else the interpreter
    kInterpreter,
  };

  // name: the value of tokenizer.ggml.pre. kInvalidArgument when it is not one of ours.
  static Result<Pretokenizer> create(std::string_view name, Engine engine = Engine::kJit);

  // text must be valid UTF-8. Appends the end offset of each piece; together the pieces are the text.
  void split(std::string_view text, std::vector<std::size_t>& ends) const;

 private:
  struct Impl;
  explicit Pretokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace strata::tokenizer
