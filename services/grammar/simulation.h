#pragma once
// Follows texts through an automaton byte by byte. All readings of an ambiguous text are followed at once;
// what waits behind calls is kept in frames that readings share, so their number stays polynomial (a
// graph-structured stack).
//
// A frame stands for "this rule was called at this place of the text" and lists everybody who waits for its
// end. It is complete once the byte that opened it is done with, and never changes again. Frames refer to
// older ones only, so undoing is cutting both arrays back to an earlier length. Not thread-safe.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "services/grammar/automaton.h"

namespace strata::grammar {

inline constexpr uint32_t kBottomFrame = 0;  // of the root: nobody waits for it

// One reading: a state, how often its rule was matched including this time (counted rules; otherwise 1), and
// its frame.
struct Config {
  StateId state = 0;
  uint32_t count = 1;
  uint32_t frame = kBottomFrame;
  bool operator==(const Config&) const = default;
};

// Where a text can be. Only configs that read something; `complete` says that the text may end here.
struct ConfigSet {
  std::vector<Config> configs;
  bool complete = false;

  bool alive() const { return complete || !configs.empty(); }
  void clear() {
    configs.clear();
    complete = false;
  }
};

// A set that is emptied often: linear probing, at most half full.
class KeySet {
 public:
  bool empty() const { return size_ == 0; }
  void clear();
  bool insert(uint64_t key);  // false: it was there

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t round = 0;  // of clear(); of another one: empty
  };
  Slot& slot_of(uint64_t key);
  void grow();

  std::vector<Slot> slots_;  // a power of two
  std::size_t size_ = 0;
  uint32_t round_ = 1;
};

class Simulation {
 public:
  explicit Simulation(const Automaton& automaton);

  // The places before the first byte.
  void begin(ConfigSet& out);
  // The places behind one byte or one named token. Empty when nothing reads it, and also when there are more
  // than kConfigsMax readings or finding them takes more than kClosureStepsMax. `out` must not hold `from`.
  void advance(std::span<const Config> from, uint8_t byte, ConfigSet& out);
  void advance_token(std::span<const Config> from, int32_t token, ConfigSet& out);
  // The places behind the end of the rule that `config` is in.
  void leave(const Config& config, ConfigSet& out);

  // Where those who wait for the end of the frame's rule go on; nobody for kBottomFrame.
  void callers(uint32_t frame, std::vector<Config>& out) const;

  // What the calls from now on may cost together, in places looked at. When it is spent they find nothing,
  // and what they found before means nothing either.
  void give_steps(uint64_t steps) { steps_left_ = steps; }
  bool out_of_steps() const { return steps_left_ == 0; }
  // For work beside the calls.
  void spend(uint64_t steps) { steps_left_ -= std::min(steps, steps_left_); }

  struct Mark {
    uint32_t frames = 0;
    uint32_t returns = 0;
  };
  Mark mark() const {
    return {static_cast<uint32_t>(frames_.size()), static_cast<uint32_t>(returns_.size())};
  }
  void cut(Mark mark) {
    frames_.resize(mark.frames);
    returns_.resize(mark.returns);
  }
  // Drops the frames that no config waits in; renumbers those of the configs, and the marks.
  void compact(std::span<Config> configs, std::span<Mark> marks);

 private:
  struct Frame {
    uint32_t first_return = 0;  // into returns_; kNoReturn: none
  };
  struct Return {
    Config config;  // where to go on
    uint32_t next = 0;
  };
  struct Opened {
    uint32_t stamp = 0;
    uint32_t frame = 0;
  };

  void start();
  void add(const Config& config);
  void close(ConfigSet& out);
  void end_rule(const Config& config, const Automaton::State& state);
  void add_returns(uint32_t frame);
  void call(const Config& config, const Automaton::CallEdge& edge);

  const Automaton* automaton_;
  std::vector<Frame> frames_;
  std::vector<Return> returns_;
  // Of the step being made.
  std::vector<Config> found_;
  KeySet found_keys_;  // used once there are many
  uint32_t steps_ = 0;
  uint64_t steps_left_ = std::numeric_limits<uint64_t>::max();  // of all steps
  bool complete_ = false;
  uint32_t stamp_ = 0;
  std::vector<Opened> opened_;  // (rules) frames opened in this step
};

}  // namespace strata::grammar
