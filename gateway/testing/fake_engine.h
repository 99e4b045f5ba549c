#pragma once
// A gpu-worker for tests of the gateway: the real sockets and messages, but the answers are a script.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace strata::gateway::testing {

// What every call is answered with. The token at a position depends on nothing but the position, as the
// numbers contract says.
struct Script {
  std::string text = "A violin is a small stringed instrument.";  // special spellings are special tokens
  bool endless = false;                                           // the text again and again
  std::chrono::milliseconds prefill{0};
  std::chrono::milliseconds per_token{0};
};

struct SeenCall {
  std::vector<int32_t> prompt_tokens = {};
  std::vector<int32_t> generated_tokens = {};
  uint32_t max_tokens = 0;
  uint64_t seed = 0;
  float temperature = 0;
};

class FakeEngine {
 public:
  // Answers as gpu-worker in this run directory, once start() was called.
  explicit FakeEngine(std::string run_dir);
  ~FakeEngine();

  void start();
  void die();  // open calls break; start() gives a new instance

  void set_script(Script script);
  void set_ready(bool ready);  // else: loading, 42%
  void set_sequences(uint32_t sequences);
  void set_context(uint32_t tokens);

  std::vector<SeenCall> seen() const;
  uint32_t running() const;
  uint32_t cancelled() const;  // calls that were given up by the other side

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::gateway::testing
