#include "services/grammar/matcher.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <limits>

#include "services/base/check.h"
#include "services/grammar/limits.h"

namespace strata::grammar {
namespace {

void set_bit(std::span<uint32_t> mask, int32_t token) {
  const auto t = static_cast<uint32_t>(token);
  mask[t / 32] |= 1U << t % 32;
}

// 32 tokens from `restarts` on: bit i says whether token i begins anew at most `allowed` times.
uint32_t up_to(const uint8_t* restarts, uint8_t allowed) {
#if defined(__SSE2__)
  const __m128i limit = _mm_set1_epi8(static_cast<char>(allowed));
  uint32_t word = 0;
  for (int half = 0; half < 2; ++half) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(restarts + 16 * half));
    const __m128i fits = _mm_cmpeq_epi8(_mm_min_epu8(values, limit), values);
    word |= static_cast<uint32_t>(_mm_movemask_epi8(fits)) << (16 * half);
  }
  return word;
#else
  uint32_t word = 0;
  for (uint32_t i = 0; i < 32; ++i) word |= static_cast<uint32_t>(restarts[i] <= allowed) << i;
  return word;
#endif
}

// mask |= (restarts[t] <= allowed). A quarter of a million tokens: one by one this would take as long as all
// the rest.
void add_up_to(std::span<const uint8_t> restarts, uint8_t allowed, std::span<uint32_t> mask) {
  const std::size_t words = restarts.size() / 32;
  for (std::size_t w = 0; w < words; ++w) mask[w] |= up_to(restarts.data() + w * 32, allowed);
  for (std::size_t t = words * 32; t < restarts.size(); ++t) {
    if (restarts[t] <= allowed) set_bit(mask, static_cast<int32_t>(t));
  }
}

}  // namespace

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, uint32_t rollback_max)
    : grammar_(std::move(grammar)), rollback_max_(rollback_max), simulation_(grammar_->automaton()) {
  ConfigSet places;
  simulation_.begin(places);
  push(places, false);
}

void Matcher::push(const ConfigSet& places, bool ended) {
  const auto begin = static_cast<uint32_t>(configs_.size());
  configs_.insert(configs_.end(), places.configs.begin(), places.configs.end());
  steps_.push_back({.begin = begin,
                    .end = static_cast<uint32_t>(configs_.size()),
                    .mark = simulation_.mark(),
                    .complete = places.complete,
                    .ended = ended});
}

void Matcher::begin_call() {
  gave_up_ = false;
  simulation_.give_steps(effort_ == Effort::kQuick ? kQuickStepsMax : kPatientStepsMax);
}

bool Matcher::accept(int32_t token) {
  begin_call();
  const Step step = steps_.back();
  if (step.ended) return false;
  ConfigSet places;
  const bool ends = step.complete && grammar_->vocabulary().is_end_of_generation(token);
  if (!ends) {
    const std::string_view bytes = grammar_->vocabulary().bytes(token);
    ConfigSet named;
    simulation_.advance_token(configs(step), token, named);
    if (!bytes.empty()) read_bytes(bytes, configs(step), places);
    places.complete = places.complete || named.complete;
    places.configs.insert(places.configs.end(), named.configs.begin(), named.configs.end());
    gave_up_ = simulation_.out_of_steps();
    if (gave_up_ || !places.alive()) {
      simulation_.cut(step.mark);
      return false;
    }
  }
  push(places, ends);
  if (steps_.size() > 2 * (std::size_t{rollback_max_} + 1) || simulation_.mark().frames > frames_max_)
    forget_old();
  return true;
}

bool Matcher::read_bytes(std::string_view bytes, std::span<const Config> from, ConfigSet& out) {
  ConfigSet next;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    simulation_.advance(from, static_cast<uint8_t>(bytes[i]), next);
    std::swap(out, next);
    if (i + 1 < bytes.size()) out.complete = false;  // the text may not end inside a token
    if (out.configs.empty()) break;
    from = out.configs;
  }
  return out.alive();
}

void Matcher::rollback(uint32_t tokens) {
  CHECK(tokens <= rollback_available(), "rollback of {} tokens, {} are kept", tokens, rollback_available());
  steps_.resize(steps_.size() - tokens);
  configs_.resize(steps_.back().end);
  simulation_.cut(steps_.back().mark);
}

void Matcher::forget_old() {
  if (const std::size_t kept = std::size_t{rollback_max_} + 1; steps_.size() > kept) {
    steps_.erase(steps_.begin(), steps_.end() - static_cast<std::ptrdiff_t>(kept));
    const uint32_t dropped = steps_.front().begin;
    configs_.erase(configs_.begin(), configs_.begin() + dropped);
    for (Step& step : steps_) {
      step.begin -= dropped;
      step.end -= dropped;
    }
  }
  std::vector<Simulation::Mark> marks;
  for (const Step& step : steps_) marks.push_back(step.mark);
  simulation_.compact(configs_, marks);
  for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i].mark = marks[i];
  // A deeply nested text needs many; looking again at each token would be slow.
  frames_max_ = std::max(kFramesKept, 2 * simulation_.mark().frames);
}

bool Matcher::fill_mask(std::span<uint32_t> mask) {
  const Automaton& automaton = grammar_->automaton();
  CHECK(mask.size() == grammar_->vocabulary().mask_words(), "mask of {} words for {}", mask.size(),
        grammar_->vocabulary().mask_words());
  begin_call();
  std::fill(mask.begin(), mask.end(), 0);
  const Step step = steps_.back();
  if (step.ended) return true;
  std::vector<Config> searched;
  for (uint32_t i = step.begin; i < step.end && !gave_up_; ++i) {
    const Config config = configs_[i];
    if (!add_by_mask(config, mask)) searched.push_back(config);
    for (const Automaton::TokenEdge& edge : automaton.token_edges(automaton.state(config.state)))
      set_bit(mask, edge.token);
    gave_up_ = gave_up_ || simulation_.out_of_steps();
  }
  // Walking the vocabulary is never quick.
  gave_up_ = gave_up_ || (!searched.empty() && effort_ == Effort::kQuick);
  if (!gave_up_ && !searched.empty()) {
    add_by_search(std::move(searched), mask);
    gave_up_ = simulation_.out_of_steps();
  }
  if (gave_up_) return false;
  if (step.complete) {
    for (const int32_t token : grammar_->vocabulary().end_of_generation()) set_bit(mask, token);
  }
  return true;
}

// Null: there is none, or it would have to be made, which is not quick.
const StateMask* Matcher::find_mask(const MaskPlace& place) {
  if (const StateMask* made = grammar_->made_mask(place)) return made;
  if (effort_ == Effort::kQuick) {
    gave_up_ = true;
    return nullptr;
  }
  simulation_.spend(kMaskMadeSteps);
  return grammar_->mask(place);
}

// False: only a walk of the vocabulary says what may come.
bool Matcher::add_by_mask(const Config& config, std::span<uint32_t> mask) {
  const MaskPlace place = MaskPlace::of(config.state);
  const StateMask* state = find_mask(place);
  if (state == nullptr || state->form == StateMask::Form::kSearch) return false;
  add_inside(config, *state, mask);
  if (!state->rests.empty()) add_rests(config, *state, mask);
  uint32_t masks_left = kCallerMasksPerStep;
  return !state->by_caller || add_by_callers(config, place, masks_left, mask);
}

void Matcher::add_inside(const Config& config, const StateMask& state, std::span<uint32_t> mask) {
  // In steps: a token of a list is about 1 ns, 64 tokens of bits or five counted ones as well.
  simulation_.spend(1 + state.tokens.size() / 8 + state.bits.size() / 64 + state.restarts.size() / 300);
  const Automaton::Rule& rule = grammar_->automaton().rule(grammar_->automaton().state(config.state).rule);
  // How often a counted rule may still begin anew.
  const uint32_t left = rule.counted ? rule.max - config.count : StateMask::kRefused;
  const bool all = left >= state.restarts_max;
  if (state.form == StateMask::Form::kList) {
    for (std::size_t i = 0; i < state.tokens.size(); ++i) {
      if (all || state.restarts[i] <= left) set_bit(mask, state.tokens[i]);
    }
  } else if (all) {
    for (std::size_t w = 0; w < mask.size(); ++w) mask[w] |= state.bits[w];
  } else {
    add_up_to(state.restarts, static_cast<uint8_t>(left), mask);
  }
}

void Matcher::add_rests(const Config& config, const StateMask& state, std::span<uint32_t> mask) {
  const Automaton::Rule& rule = grammar_->automaton().rule(grammar_->automaton().state(config.state).rule);
  const Simulation::Mark mark = simulation_.mark();
  std::vector<ConfigSet>& walk = scratch_.walk;
  if (walk.empty()) walk.resize(1);
  simulation_.leave(config, walk[0]);
  // walk[d]: behind d bytes of the rest at hand; `read` of them are up to date, at `dead` + 1 bytes nothing
  // fits.
  uint32_t read = 0;
  uint32_t dead = std::numeric_limits<uint32_t>::max();
  for (const StateMask::Rest& rest : state.rests) {
    if (rest.shared > dead) continue;
    if (simulation_.out_of_steps()) break;
    dead = std::numeric_limits<uint32_t>::max();
    read = std::min(read, rest.shared);
    const std::string_view text = state.text(rest);
    if (walk.size() <= text.size()) walk.resize(text.size() + 1);
    for (; read < text.size(); ++read) {
      simulation_.advance(walk[read].configs, static_cast<uint8_t>(text[read]), walk[read + 1]);
      if (walk[read + 1].alive()) continue;
      dead = read;
      break;
    }
    if (dead != std::numeric_limits<uint32_t>::max()) continue;
    for (uint32_t i = rest.tokens_begin; i < rest.tokens_end; ++i) {
      const bool fits = !rule.counted || (config.count + state.rest_restarts[i] >= rule.min &&
                                          config.count + state.rest_restarts[i] <= rule.max);
      if (fits) set_bit(mask, state.rest_tokens[i]);
    }
  }
  simulation_.cut(mark);
}

bool Matcher::add_by_callers(const Config& config, const MaskPlace& place, uint32_t& masks_left,
                             std::span<uint32_t> mask) {
  std::vector<Config> callers;
  simulation_.callers(config.frame, callers);
  for (const Config& caller : callers) {
    if (masks_left-- == 0) return false;
    const MaskPlace behind = place.behind(caller.state);
    const StateMask* state = find_mask(behind);
    if (state == nullptr || state->form == StateMask::Form::kSearch) return false;
    add_inside(caller, *state, mask);
    if (!state->rests.empty()) add_rests(caller, *state, mask);
    if (state->by_caller && !add_by_callers(caller, behind, masks_left, mask)) return false;
  }
  return true;
}

void Matcher::add_by_search(std::vector<Config> from, std::span<uint32_t> mask) {
  const TokenTrie& trie = grammar_->vocabulary().trie();
  const Simulation::Mark mark = simulation_.mark();
  std::vector<ConfigSet>& walk = scratch_.walk;
  if (walk.size() <= kTokenBytesMax) walk.resize(kTokenBytesMax + 1);
  std::vector<Simulation::Mark> marks(kTokenBytesMax + 1, mark);  // behind each depth
  walk[0].configs = std::move(from);
  for (uint32_t node = 1; node < trie.node_count() && !simulation_.out_of_steps();) {
    const uint32_t depth = trie.depth(node);
    simulation_.cut(marks[depth - 1]);
    simulation_.advance(walk[depth - 1].configs, trie.byte(node), walk[depth]);
    marks[depth] = simulation_.mark();
    if (!walk[depth].alive()) {
      node = trie.end(node);
      continue;
    }
    for (const int32_t token : trie.tokens(node)) set_bit(mask, token);
    ++node;
  }
  simulation_.cut(mark);
}

std::string Matcher::forced_text(std::size_t bytes_max) {
  const Automaton& automaton = grammar_->automaton();
  const Simulation::Mark mark = simulation_.mark();
  const Step step = steps_.back();
  ConfigSet here;
  here.configs.assign(configs_.begin() + step.begin, configs_.begin() + step.end);
  here.complete = step.complete;
  ConfigSet next;
  std::string text;
  while (text.size() < bytes_max && !here.complete && !here.configs.empty() && !step.ended) {
    int byte = -1;
    bool one = true;
    for (const Config& config : here.configs) {
      const Automaton::State& state = automaton.state(config.state);
      one = one && state.tokens_begin == state.tokens_end;
      for (const Automaton::ByteEdge& edge : automaton.byte_edges(state)) {
        one = one && edge.first == edge.last && (byte == -1 || byte == edge.first);
        byte = edge.first;
      }
    }
    if (!one || byte == -1) break;
    simulation_.advance(here.configs, static_cast<uint8_t>(byte), next);
    if (!next.alive()) break;
    text += static_cast<char>(byte);
    std::swap(here, next);
  }
  simulation_.cut(mark);
  return text;
}

}  // namespace strata::grammar
