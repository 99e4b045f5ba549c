#include "services/grammar/grammar.h"

#include "services/grammar/gbnf.h"
#include "services/grammar/rule_plan.h"

namespace strata::grammar {

Result<std::shared_ptr<const Grammar>> Grammar::compile(const Rules& rules,
                                                        std::shared_ptr<const Vocabulary> vocabulary) {
  TRY(const RulePlan plan, plan_rules(rules));
  TRY(Automaton automaton, Automaton::build(rules, plan, *vocabulary));
  return std::shared_ptr<const Grammar>(new Grammar(std::move(automaton), std::move(vocabulary)));
}

Result<std::shared_ptr<const Grammar>> Grammar::from_gbnf(std::string_view text,
                                                          std::shared_ptr<const Vocabulary> vocabulary) {
  TRY(const Rules rules, parse_gbnf(text));
  return compile(rules, std::move(vocabulary));
}

Grammar::Grammar(Automaton automaton, std::shared_ptr<const Vocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)),
      automaton_(std::move(automaton)),
      builder_(automaton_, *vocabulary_),
      masks_(automaton_.state_count()) {}

Grammar::~Grammar() {
  for (const auto& mask : masks_) delete mask.load(std::memory_order_relaxed);
}

const StateMask& Grammar::mask(StateId state) const {
  if (const StateMask* made = masks_[state].load(std::memory_order_acquire)) return *made;
  const std::scoped_lock lock(mutex_);
  if (const StateMask* made = masks_[state].load(std::memory_order_relaxed)) return *made;  // while we waited
  auto mask = std::make_unique<const StateMask>(builder_.build(state));
  mask_bytes_.fetch_add(mask->memory_bytes(), std::memory_order_relaxed);
  masks_[state].store(mask.get(), std::memory_order_release);
  return *mask.release();
}

uint32_t Grammar::prepare(std::chrono::nanoseconds budget) const {
  const auto begin = std::chrono::steady_clock::now();
  for (StateId state = 0; state < automaton_.state_count(); ++state) {
    if (std::chrono::steady_clock::now() - begin > budget) return automaton_.state_count() - state;
    mask(state);
  }
  return 0;
}

std::size_t Grammar::memory_bytes() const {
  return automaton_.memory_bytes() + masks_.size() * sizeof(masks_[0]) +
         mask_bytes_.load(std::memory_order_relaxed);
}

}  // namespace strata::grammar
