#pragma once
// A grammar compiled for one vocabulary. Immutable for its users, shared between requests and threads; the
// masks of its states are made when they are first needed, or before by prepare().

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
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

// A grammar makes no masks beyond this; its steps then take longer.
struct MaskRoom {
  std::size_t bytes = kMaskBytesMax;
  std::size_t caller_bytes = kCallerMaskBytesMax;  // of them, by callers
};

class Grammar {
 public:
  // Errors: kInvalidArgument for what no text can match and for left recursion, kResourceExhausted beyond
  // limits.h.
  static Result<std::shared_ptr<const Grammar>> compile(const Rules& rules,
                                                        std::shared_ptr<const Vocabulary> vocabulary,
                                                        MaskRoom room = {});
  // parse_gbnf and compile.
  static Result<std::shared_ptr<const Grammar>> from_gbnf(std::string_view text,
                                                          std::shared_ptr<const Vocabulary> vocabulary);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  const Automaton& automaton() const { return automaton_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }

  // The mask of a place; made now if it was not before (microseconds where few tokens fit, milliseconds
  // inside of free text). Null when masks take all the memory they may and this is none of those that were
  // made. Any thread may call.
  const StateMask* mask(const MaskPlace& place) const;

  // Null: it has not been made. Never waits for a mask that is being made.
  const StateMask* made_mask(const MaskPlace& place) const;

  // Makes the masks of all states, and of their callers where they need them, until `budget` is spent.
  // Returns how many are left that it knows of. For threads that no window waits for; who needs a mask
  // meanwhile waits for one that is being made, not for the others.
  uint32_t prepare(std::chrono::nanoseconds budget) const;

  // Of the automaton and of the masks made so far.
  std::size_t memory_bytes() const;

 private:
  Grammar(Automaton automaton, std::shared_ptr<const Vocabulary> vocabulary, MaskRoom room);
  std::unique_lock<std::mutex> lock_builder() const;
  void let_others_build() const;
  const StateMask* keep(const MaskPlace& place) const;
  void add_callers(const MaskPlace& place, const StateMask& mask, std::deque<MaskPlace>& to) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  const Automaton automaton_;
  const MaskRoom room_;
  mutable std::mutex mutex_;                  // held while a mask is made
  mutable std::atomic<uint32_t> waiting_{0};  // for mutex_
  mutable StateMaskBuilder builder_;
  // (states) null until made; published with release, so that whoever sees the pointer sees the mask.
  mutable std::vector<std::atomic<const StateMask*>> masks_;
  mutable std::atomic<std::size_t> mask_bytes_{0};
  // Not mutex_, which whoever makes a mask holds for long.
  mutable std::mutex by_caller_mutex_;
  mutable std::map<MaskPlace, std::unique_ptr<const StateMask>> by_caller_;  // places with callers
  mutable std::size_t by_caller_bytes_ = 0;                                  // under mutex_
};

}  // namespace strata::grammar
