#include "services/grammar/simulation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "services/grammar/limits.h"

namespace strata::grammar {
namespace {

constexpr uint32_t kNoReturn = std::numeric_limits<uint32_t>::max();
// Up to here looking through the list is faster than hashing.
constexpr std::size_t kSearchedMax = 24;

}  // namespace

void KeySet::clear() {
  size_ = 0;
  if (++round_ != 0) return;
  slots_.clear();
  round_ = 1;
}

KeySet::Slot& KeySet::slot_of(uint64_t key) {
  const std::size_t mask = slots_.size() - 1;
  // Keys differ in low and in high bits; the product's upper ones depend on all.
  std::size_t at = (key * 0x9E3779B97F4A7C15U) >> 32 & mask;
  while (slots_[at].round == round_ && slots_[at].key != key) at = (at + 1) & mask;
  return slots_[at];
}

bool KeySet::insert(uint64_t key) {
  if (2 * (size_ + 1) > slots_.size()) grow();
  Slot& slot = slot_of(key);
  if (slot.round == round_) return false;
  slot = {key, round_};
  ++size_;
  return true;
}

void KeySet::grow() {
  const std::vector<Slot> before = std::exchange(slots_, {});
  slots_.resize(std::max<std::size_t>(128, 2 * before.size()));
  for (const Slot& slot : before) {
    if (slot.round == round_) slot_of(slot.key) = slot;
  }
}

Simulation::Simulation(const Automaton& automaton) : automaton_(&automaton), opened_(automaton.rule_count()) {
  frames_.push_back({kNoReturn});
}

void Simulation::begin(ConfigSet& out) {
  start();
  add({.state = automaton_->rule(0).start});
  close(out);
  out.complete = out.complete || automaton_->rule(0).nullable;
}

void Simulation::advance(std::span<const Config> from, uint8_t byte, ConfigSet& out) {
  start();
  for (const Config& config : from) {
    for (const Automaton::ByteEdge& edge : automaton_->byte_edges(automaton_->state(config.state))) {
      if (edge.first > byte) break;
      if (edge.last >= byte) add({edge.target, config.count, config.frame});
    }
  }
  close(out);
}

void Simulation::advance_token(std::span<const Config> from, int32_t token, ConfigSet& out) {
  start();
  for (const Config& config : from) {
    for (const Automaton::TokenEdge& edge : automaton_->token_edges(automaton_->state(config.state))) {
      if (edge.token == token) add({edge.target, config.count, config.frame});
    }
  }
  close(out);
}

void Simulation::leave(const Config& config, ConfigSet& out) {
  start();
  add_returns(config.frame);
  close(out);
}

void Simulation::callers(uint32_t frame, std::vector<Config>& out) const {
  out.clear();
  for (uint32_t i = frames_[frame].first_return; i != kNoReturn; i = returns_[i].next)
    out.push_back(returns_[i].config);
}

void Simulation::start() {
  found_.clear();
  found_keys_.clear();
  steps_ = 0;
  complete_ = false;
  if (++stamp_ == 0) {
    std::fill(opened_.begin(), opened_.end(), Opened{});
    stamp_ = 1;
  }
}

void Simulation::add(const Config& config) {
  ++steps_;
  if (found_.size() < kSearchedMax) {
    if (std::find(found_.begin(), found_.end(), config) != found_.end()) return;
  } else {
    const auto key = [](const Config& c) {
      // Exact: states are below 2^19, frames below 2^25 (a matcher compacts long before), counts below 2^20.
      static_assert(kStatesMax <= 1U << 19 && kRepeatMax <= 1U << 20);
      return uint64_t{c.state} << 45 | uint64_t{c.count} << 25 | c.frame;
    };
    if (found_keys_.empty()) {
      for (const Config& earlier : found_) found_keys_.insert(key(earlier));
    }
    if (!found_keys_.insert(key(config))) return;
  }
  found_.push_back(config);
}

void Simulation::close(ConfigSet& out) {
  out.clear();
  for (std::size_t i = 0; i < found_.size(); ++i) {
    const Config config = found_[i];
    const Automaton::State& state = automaton_->state(config.state);
    if (state.accepting) end_rule(config, state);
    for (const Automaton::CallEdge& edge : automaton_->call_edges(state)) call(config, edge);
    if (state.bytes_begin != state.bytes_end || state.tokens_begin != state.tokens_end) {
      out.configs.push_back(config);
    }
    if (steps_ > std::min<uint64_t>(kClosureStepsMax, steps_left_) || out.configs.size() > kConfigsMax) {
      spend(steps_);
      out.clear();
      return;
    }
  }
  spend(steps_ + 1);
  out.complete = complete_;
}

void Simulation::end_rule(const Config& config, const Automaton::State& state) {
  const Automaton::Rule& rule = automaton_->rule(state.rule);
  if (rule.counted) {
    if (config.count < rule.max) add({rule.start, config.count + 1, config.frame});
    if (config.count < rule.min) return;
  }
  add_returns(config.frame);
}

void Simulation::add_returns(uint32_t frame) {
  if (frame == kBottomFrame) {
    complete_ = true;
    return;
  }
  for (uint32_t i = frames_[frame].first_return; i != kNoReturn; i = returns_[i].next) {
    if (steps_ > kClosureStepsMax) return;
    add(returns_[i].config);
  }
}

void Simulation::call(const Config& config, const Automaton::CallEdge& edge) {
  Opened& opened = opened_[edge.rule];
  const bool is_new = opened.stamp != stamp_;
  if (is_new) {
    opened = {stamp_, static_cast<uint32_t>(frames_.size())};
    frames_.push_back({kNoReturn});
  }
  Frame& frame = frames_[opened.frame];
  returns_.push_back({{edge.target, config.count, config.frame}, frame.first_return});
  frame.first_return = static_cast<uint32_t>(returns_.size() - 1);
  ++steps_;
  if (is_new) add({.state = automaton_->rule(edge.rule).start, .count = 1, .frame = opened.frame});
}

void Simulation::compact(std::span<Config> configs, std::span<Mark> marks) {
  std::vector<uint32_t> new_ids(frames_.size(), 0);  // 1: needed, until they are numbered
  new_ids[kBottomFrame] = 1;
  for (const Config& config : configs) new_ids[config.frame] = 1;
  // Who waits in a frame waits in older ones, so one pass from the youngest finds all.
  for (std::size_t f = frames_.size(); f-- > 0;) {
    if (new_ids[f] == 0) continue;
    for (uint32_t i = frames_[f].first_return; i != kNoReturn; i = returns_[i].next) {
      new_ids[returns_[i].config.frame] = 1;
    }
  }
  std::vector<Frame> frames;
  std::vector<Return> returns;
  std::size_t next_mark = 0;  // marks rise
  for (std::size_t f = 0; f < frames_.size(); ++f) {
    for (; next_mark < marks.size() && marks[next_mark].frames <= f; ++next_mark) {
      marks[next_mark] = {static_cast<uint32_t>(frames.size()), static_cast<uint32_t>(returns.size())};
    }
    if (new_ids[f] == 0) continue;
    new_ids[f] = static_cast<uint32_t>(frames.size());
    Frame frame{kNoReturn};
    for (uint32_t i = frames_[f].first_return; i != kNoReturn; i = returns_[i].next) {
      Return kept = returns_[i];
      kept.config.frame = new_ids[kept.config.frame];
      kept.next = frame.first_return;
      frame.first_return = static_cast<uint32_t>(returns.size());
      returns.push_back(kept);
    }
    frames.push_back(frame);
  }
  for (; next_mark < marks.size(); ++next_mark) {
    marks[next_mark] = {static_cast<uint32_t>(frames.size()), static_cast<uint32_t>(returns.size())};
  }
  for (Config& config : configs) config.frame = new_ids[config.frame];
  frames_ = std::move(frames);
  returns_ = std::move(returns);
}

}  // namespace strata::grammar
