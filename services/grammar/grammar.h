#pragma once
// A grammar compiled for one vocabulary. Immutable for its users, shared between requests and threads; the
// masks of its states are made when they are first needed, or before by prepare().

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/grammar/automaton.h"
#include "services/grammar/rules.h"
#include "services/grammar/state_mask.h"
#include "services/grammar/vocabulary.h"

namespace strata::grammar {

class Grammar {
 public:
  // Errors: kInvalidArgument for what no text can match and for left recursion, kResourceExhausted beyond
  // limits.h.
  static Result<std::shared_ptr<const Grammar>> compile(const Rules& rules,
                                                        std::shared_ptr<const Vocabulary> vocabulary);
  // parse_gbnf and compile.
  static Result<std::shared_ptr<const Grammar>> from_gbnf(std::string_view text,
                                                          std::shared_ptr<const Vocabulary> vocabulary);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  const Automaton& automaton() const { return automaton_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }

  // The mask of a state; made now if it was not before (microseconds where few tokens fit, milliseconds
  // inside of free text). Any thread may call.
  const StateMask& mask(StateId state) const;

  // Makes the masks of all states, until `budget` is spent. Returns how many
  // are left. For the thread that compiles, so that no window waits for a mask.
  uint32_t prepare(std::chrono::nanoseconds budget) const;

  // Of the automaton and of the masks made so far.
  std::size_t memory_bytes() const;

 private:
  Grammar(Automaton automaton, std::shared_ptr<const Vocabulary> vocabulary);

  std::shared_ptr<const Vocabulary> vocabulary_;
  const Automaton automaton_;
  mutable std::mutex mutex_;  // held while a mask is made
  mutable StateMaskBuilder builder_;
  // (states) null until made; published with release, so that whoever sees the pointer sees the mask.
  mutable std::vector<std::atomic<const StateMask*>> masks_;
  mutable std::atomic<std::size_t> mask_bytes_{0};
};

}  // namespace strata::grammar
