#include "services/grammar/grammar.h"

#include <thread>

#include "services/grammar/gbnf.h"
#include "services/grammar/rule_plan.h"

namespace strata::grammar {

Result<std::shared_ptr<const Grammar>> Grammar::compile(const Rules& rules,
                                                        std::shared_ptr<const Vocabulary> vocabulary,
                                                        MaskRoom room) {
  TRY(const RulePlan plan, plan_rules(rules));
  TRY(Automaton automaton, Automaton::build(rules, plan, *vocabulary));
  return std::shared_ptr<const Grammar>(new Grammar(std::move(automaton), std::move(vocabulary), room));
}

Result<std::shared_ptr<const Grammar>> Grammar::from_gbnf(std::string_view text,
                                                          std::shared_ptr<const Vocabulary> vocabulary) {
  TRY(const Rules rules, parse_gbnf(text));
  return compile(rules, std::move(vocabulary));
}

Grammar::Grammar(Automaton automaton, std::shared_ptr<const Vocabulary> vocabulary, MaskRoom room)
    : vocabulary_(std::move(vocabulary)),
      automaton_(std::move(automaton)),
      room_(room),
      builder_(automaton_, *vocabulary_),
      masks_(automaton_.state_count()) {}

Grammar::~Grammar() {
  for (const auto& mask : masks_) delete mask.load(std::memory_order_relaxed);
}

std::unique_lock<std::mutex> Grammar::lock_builder() const {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return lock;
}

// Who locks again at once would get the mutex before those who wait for it.
void Grammar::let_others_build() const {
  while (waiting_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
}

const StateMask* Grammar::made_mask(const MaskPlace& place) const {
  if (place.count == 1) return masks_[place.states[0]].load(std::memory_order_acquire);
  const std::scoped_lock lock(by_caller_mutex_);
  const auto made = by_caller_.find(place);
  return made == by_caller_.end() ? nullptr : made->second.get();
}

const StateMask* Grammar::mask(const MaskPlace& place) const {
  if (const StateMask* made = made_mask(place)) return made;
  const auto lock = lock_builder();
  if (const StateMask* made = made_mask(place)) return made;  // while we waited
  return keep(place);
}

// Holding the builder.
const StateMask* Grammar::keep(const MaskPlace& place) const {
  const bool by_caller = place.count > 1;
  if (mask_bytes_.load(std::memory_order_relaxed) >= room_.bytes) return nullptr;
  if (by_caller && by_caller_bytes_ >= room_.caller_bytes) return nullptr;
  auto mask = std::make_unique<const StateMask>(builder_.build(place));
  const std::size_t bytes = mask->memory_bytes();
  mask_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (!by_caller) {
    masks_[place.states[0]].store(mask.get(), std::memory_order_release);
    return mask.release();
  }
  by_caller_bytes_ += bytes;
  const std::scoped_lock adding(by_caller_mutex_);
  return by_caller_.emplace(place, std::move(mask)).first->second.get();
}

uint32_t Grammar::prepare(std::chrono::nanoseconds budget) const {
  const auto end = std::chrono::steady_clock::now() + budget;
  std::deque<MaskPlace> left;  // places with callers
  for (StateId state = 0; state < automaton_.state_count(); ++state) {
    if (std::chrono::steady_clock::now() > end)
      return automaton_.state_count() - state + static_cast<uint32_t>(left.size());
    let_others_build();
    const StateMask* made = mask(MaskPlace::of(state));
    if (made == nullptr) break;  // no more are kept
    add_callers(MaskPlace::of(state), *made, left);
  }
  for (; !left.empty(); left.pop_front()) {
    if (std::chrono::steady_clock::now() > end) return static_cast<uint32_t>(left.size());
    let_others_build();
    const StateMask* made = mask(left.front());
    if (made == nullptr) break;
    add_callers(left.front(), *made, left);
  }
  const auto lock = lock_builder();
  builder_.forget();
  return 0;
}

void Grammar::add_callers(const MaskPlace& place, const StateMask& mask, std::deque<MaskPlace>& to) const {
  if (!mask.by_caller) return;
  for (const StateId caller : automaton_.rule(automaton_.state(place.outermost()).rule).return_states)
    to.push_back(place.behind(caller));
}

std::size_t Grammar::memory_bytes() const {
  return automaton_.memory_bytes() + masks_.size() * sizeof(masks_[0]) +
         mask_bytes_.load(std::memory_order_relaxed);
}

}  // namespace strata::grammar
