#pragma once
// Where one sequence stands in its grammar: which tokens may come next, and taking them back. One thread at a
// time; a copy is independent and costs a few hundred bytes.
//
// For drafts: accept() each draft and take its mask, then rollback() what the verification refused.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "services/grammar/grammar.h"
#include "services/grammar/simulation.h"

namespace strata::grammar {

class Matcher {
 public:
  // rollback_max: how many tokens rollback() can take back at most.
  explicit Matcher(std::shared_ptr<const Grammar> grammar, uint32_t rollback_max = 32);

  // What each of the following calls may do: kPatient, the default, makes masks that it needs and gives up
  // after kPatientStepsMax; kQuick makes none and gives up after kQuickStepsMax.
  enum class Effort { kQuick, kPatient };
  void set_effort(Effort effort) { effort_ = effort; }
  // The last call gave up. Nothing has changed; it may be tried again with more effort.
  bool gave_up() const { return gave_up_; }

  // The tokens that may come next; overwrites all of mask, (vocabulary().mask_words()). All zero after the
  // end of generation. A token in the mask is accepted, one outside is not (but see kConfigsMax in limits.h).
  // False: it gave up, and the mask means nothing.
  bool fill_mask(std::span<uint32_t> mask);

  // Takes a token; false, and nothing changes, if it does not fit or the matcher gave up. An
  // end-of-generation token fits where the text is complete.
  bool accept(int32_t token);
  // Takes back the last tokens. Needs tokens <= rollback_available().
  void rollback(uint32_t tokens);
  uint32_t rollback_available() const { return static_cast<uint32_t>(steps_.size() - 1); }

  // The text so far is one of the grammar's; more may still follow.
  bool is_complete() const { return steps_.back().complete; }
  // An end-of-generation token was accepted.
  bool is_ended() const { return steps_.back().ended; }
  // Nothing may follow but the end of generation.
  bool only_end_allowed() const { return steps_.back().count() == 0; }

  // The bytes that must come next, as long as there is only one choice; at most bytes_max. Empty where the
  // text may end. They need not end between characters. To use them, tokenize them with what stands before
  // and accept the tokens.
  std::string forced_text(std::size_t bytes_max = 256);

  const Grammar& grammar() const { return *grammar_; }

 private:
  struct Step {
    uint32_t begin = 0, end = 0;  // into configs_
    Simulation::Mark mark;
    bool complete = false;
    bool ended = false;
    uint32_t count() const { return end - begin; }
  };

  // Places by depth of a walk; worth keeping, not worth copying.
  struct Scratch {
    Scratch() = default;
    Scratch(const Scratch&) {}
    Scratch& operator=(const Scratch&) { return *this; }
    std::vector<ConfigSet> walk;
  };

  std::span<const Config> configs(const Step& step) const {
    return std::span(configs_).subspan(step.begin, step.count());
  }
  void begin_call();
  const StateMask* find_mask(const MaskPlace& place);
  bool read_bytes(std::string_view bytes, std::span<const Config> from, ConfigSet& out);
  void push(const ConfigSet& places, bool ended);
  void forget_old();
  bool add_by_mask(const Config& config, std::span<uint32_t> mask);
  void add_inside(const Config& config, const StateMask& state, std::span<uint32_t> mask);
  void add_rests(const Config& config, const StateMask& state, std::span<uint32_t> mask);
  // What a state's mask leaves to its callers. False: it would take too many masks.
  bool add_by_callers(const Config& config, const MaskPlace& place, uint32_t& masks_left,
                      std::span<uint32_t> mask);
  void add_by_search(std::vector<Config> from, std::span<uint32_t> mask);

  std::shared_ptr<const Grammar> grammar_;
  uint32_t rollback_max_;
  Effort effort_ = Effort::kPatient;
  bool gave_up_ = false;
  // Frames are few per token; what is no longer needed goes when this many are there.
  static constexpr uint32_t kFramesKept = 4096;
  uint32_t frames_max_ = kFramesKept;
  Simulation simulation_;
  std::vector<Config> configs_;  // of all steps
  std::vector<Step> steps_;      // the first is the oldest that can be gone back to
  Scratch scratch_;
};

}  // namespace strata::grammar
