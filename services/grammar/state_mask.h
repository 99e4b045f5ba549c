#pragma once
// Which tokens one place of an automaton allows, worked out once. Most tokens end inside the state's rule (or
// what it calls), and are allowed or not whatever called the rule. The others leave the rule somewhere
// inside: only the rest of their bytes behind that place depends on the callers. Many tokens have the same
// rest (`",` `"}` ...), so what a matcher still has to try are a few short texts. Where they are not few, the
// mask is made for each caller, whose rule the tokens then stay in.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "services/grammar/automaton.h"
#include "services/grammar/follow_sets.h"
#include "services/grammar/local_paths.h"
#include "services/grammar/mask_place.h"
#include "services/grammar/vocabulary.h"

namespace strata::grammar {

struct StateMask {
  enum class Form : uint8_t {
    kList,    // `tokens`
    kBits,    // `bits`
    kSearch,  // too many cases to keep: a matcher walks the vocabulary
  };
  // A token of a counted rule, and how often the rule begins anew inside it.
  static constexpr uint8_t kRefused = 255;

  Form form = Form::kList;
  std::vector<int32_t> tokens;
  std::vector<uint32_t> bits;  // (mask words)
  // Counted rules only: restarts within each of `tokens`; or of each token of the vocabulary beside `bits`.
  std::vector<uint8_t> restarts;
  uint8_t restarts_max = 0;

  struct Rest {
    uint32_t begin = 0, bytes = 0;  // into rest_text
    uint32_t shared = 0;            // leading bytes shared with the one before
    uint32_t tokens_begin = 0, tokens_end = 0;
  };
  // Too many rests, none are kept: the masks of MaskPlace::behind() of each caller say what leaves the rule.
  bool by_caller = false;
  std::vector<Rest> rests;  // sorted by their bytes
  std::string rest_text;
  std::vector<int32_t> rest_tokens;
  std::vector<uint8_t> rest_restarts;  // (rest_tokens) before the rule ends; counted rules only

  std::string_view text(const Rest& rest) const {
    return std::string_view(rest_text).substr(rest.begin, rest.bytes);
  }
  std::size_t memory_bytes() const;
};

// Makes the masks of one automaton. Not thread-safe; keeps what it learns of the automaton for the next mask.
class StateMaskBuilder {
 public:
  StateMaskBuilder(const Automaton& automaton, const Vocabulary& vocabulary)
      : automaton_(automaton), vocabulary_(vocabulary) {}

  StateMask build(const MaskPlace& place);
  // Gives back what it has learned: up to some 40 MiB.
  void forget();

 private:
  struct Exit {  // a path that left the rule at this depth
    uint32_t depth = 0;
    uint8_t restarts = 0;
    FollowSets::Id follow = FollowSets::kDead;
  };
  struct Level {
    LocalPaths::Id path = LocalPaths::kDead;
    std::size_t exits_begin = 0, exits_end = 0;
  };
  struct RestToken {
    std::string_view rest;
    int32_t token = 0;
    uint8_t restarts = 0;
  };

  // Which plain text leads from a path back to it, whatever it says: tokens of it need not be walked.
  struct Stays {
    std::array<uint64_t, 2> ascii = {};
    bool beyond_ascii = false;  // all characters beyond ASCII do
  };

  bool walk(const MaskPlace& place, StateMask& mask);
  const Stays& stays(LocalPaths::Id path);
  bool stays_beyond_ascii(LocalPaths::Id path);
  bool is_left_unread(const TokenTrie::PlainText& text, const Level& level, FollowSets::Id behind);
  void record(uint32_t node, const Level& level);
  void pack_inside(bool counted, StateMask& mask);
  void pack_rests(bool counted, StateMask& mask);

  const Automaton& automaton_;
  const Vocabulary& vocabulary_;
  std::unique_ptr<LocalPaths> paths_;
  std::unique_ptr<FollowSets> follows_;
  std::map<LocalPaths::Id, Stays> stays_;
  // Of the mask being made.
  std::vector<Level> levels_;  // by depth
  std::vector<Exit> exits_;    // of all levels
  std::vector<std::pair<int32_t, uint8_t>> inside_;
  std::vector<RestToken> rests_;
};

}  // namespace strata::grammar
