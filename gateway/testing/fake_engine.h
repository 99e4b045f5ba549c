#pragma once
// A gpu-worker for tests of the gateway: the real sockets and messages, but the answers are a script.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
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
  bool end_token_read = false;  // it was in the window that it ended (a draft was right)
  uint32_t fails_after = 0;     // tokens of an answer; 0: it does not
  uint32_t quiet_after = 0;  // tokens of an answer; then nothing comes until the call is given up; 0: never
  std::string refuses = {};  // not empty: the constraint is refused with this message
};

struct SeenCall {
  std::vector<int32_t> prompt_tokens = {};
  std::vector<int32_t> generated_tokens = {};
  uint32_t max_tokens = 0;
  uint64_t seed = 0;
  float temperature = 0;
  std::string name_space = {};
  std::string parked_id = {};
  uint32_t parked_tokens = 0;
  std::vector<uint32_t> checkpoints = {};
  uint32_t shared_prompt_tokens = 0;
  uint32_t reused_tokens = 0;
  std::optional<std::string> gbnf = {};
  uint32_t gbnf_prompt_tokens = 0;
  std::optional<int32_t> thinking_end = {};
  std::optional<uint32_t> thinking_tokens_max = {};
  std::optional<int32_t> thinking_begin = {};
};

class FakeStore;

// Keeps states as the real one does (fake_states.h): of a sequence, when it ends, whatever it has read; the
// token chosen last was not.
class FakeEngine {
 public:
  // Answers as gpu-worker in this run directory, once start() was called.
  explicit FakeEngine(std::string run_dir);
  ~FakeEngine();

  // Before start(): of states and of seen() only so many are kept, for runs of minutes.
  void keep_at_most(std::size_t count);
  void start();
  void die();                        // open calls break, its states are gone; start() gives a new instance
  void set_store(FakeStore* store);  // restores what is parked there

  void set_script(Script script);
  void set_ready(bool ready);  // else: loading, 42%
  void set_sequences(uint32_t sequences);
  void set_context(uint32_t tokens);
  void set_chunks(uint32_t prefill_chunk_tokens, bool captures_within_windows);  // before start()

  std::vector<SeenCall> seen() const;
  // Sequences that are kept: the tokens that each has read.
  std::vector<std::vector<int32_t>> kept() const;
  std::size_t states() const;  // these and checkpoints
  uint32_t running() const;
  uint32_t cancelled() const;  // calls that were given up by the other side

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::gateway::testing
