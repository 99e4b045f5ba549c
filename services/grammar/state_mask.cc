#include "services/grammar/state_mask.h"

#include <algorithm>
#include <tuple>

#include "services/grammar/code_points.h"
#include "services/grammar/limits.h"

namespace strata::grammar {
namespace {

// Beyond, what was learned is forgotten before the next mask; about 40 MiB.
constexpr std::size_t kPathsKept = 1 << 15;
// Tokens with a rest to be tried, of one state.
constexpr std::size_t kRestsMax = 2'000'000;

}  // namespace

std::size_t StateMask::memory_bytes() const {
  return sizeof(*this) + (tokens.capacity() + bits.capacity() + rest_tokens.capacity()) * sizeof(uint32_t) +
         restarts.capacity() + rests.capacity() * sizeof(Rest) + rest_text.capacity() +
         rest_restarts.capacity();
}

StateMask StateMaskBuilder::build(const MaskPlace& place) {
  if (paths_ && (paths_->size() > kPathsKept || paths_->out_of_work())) forget();
  if (!paths_) {
    paths_ = std::make_unique<LocalPaths>(automaton_);
    follows_ = std::make_unique<FollowSets>(automaton_);
  }
  paths_->give_work(kMaskWorkMax);
  StateMask mask;
  inside_.clear();
  rests_.clear();
  if (!walk(place, mask)) {
    mask.form = StateMask::Form::kSearch;
    mask.by_caller = false;
    return mask;
  }
  const bool counted = automaton_.rule(automaton_.state(place.outermost()).rule).counted;
  pack_inside(counted, mask);
  pack_rests(counted, mask);
  return mask;
}

void StateMaskBuilder::forget() {
  paths_.reset();
  follows_.reset();
  stays_.clear();
  levels_ = {};
  exits_ = {};
  inside_ = {};
  rests_ = {};
}

// False when there is too much to keep.
bool StateMaskBuilder::walk(const MaskPlace& place, StateMask& mask) {
  const TokenTrie& trie = vocabulary_.trie();
  const RuleId rule = automaton_.state(place.outermost()).rule;
  const FollowSets::Id behind = follows_->behind(rule);
  // A caller of a counted rule would have to know how often that was matched.
  const bool callers_help = place.count <= kCallersMax && !automaton_.rule(rule).counted;
  levels_.assign(kTokenBytesMax + 1, {});
  exits_.clear();
  levels_[0].path = paths_->start(place);
  uint64_t walked = 0;
  auto plain = trie.plain_texts().begin();
  for (uint32_t node = 1; node < trie.node_count();) {
    const uint32_t depth = trie.depth(node);
    const uint8_t byte = trie.byte(node);
    const Level parent = levels_[depth - 1];
    exits_.resize(parent.exits_end);
    walked += 1 + parent.exits_end - parent.exits_begin;
    if (walked > kMaskNodesMax) return false;
    Level level{.path = LocalPaths::kDead, .exits_begin = exits_.size(), .exits_end = 0};
    for (std::size_t i = parent.exits_begin; i < parent.exits_end; ++i) {
      Exit exit = exits_[i];
      exit.follow = follows_->step(exit.follow, byte);
      if (exit.follow != FollowSets::kDead) exits_.push_back(exit);
    }
    if (parent.path != LocalPaths::kDead) {
      if (!paths_->exits(parent.path).empty()) {
        const FollowSets::Id follow = follows_->step(behind, byte);
        for (const uint8_t restarts : paths_->exits(parent.path)) {
          if (follow != FollowSets::kDead) exits_.push_back({depth - 1, restarts, follow});
        }
      }
      level.path = paths_->step(parent.path, byte);
      if (level.path == LocalPaths::kOverflow) return false;
    }
    level.exits_end = exits_.size();
    if (level.path == LocalPaths::kDead && level.exits_begin == level.exits_end) {
      node = trie.end(node);
      continue;
    }
    for (; plain != trie.plain_texts().end() && plain->node < node; ++plain) {
    }
    if (plain != trie.plain_texts().end() && plain->node == node && is_left_unread(*plain, level, behind)) {
      for (const int32_t token : trie.tokens_from(node)) inside_.emplace_back(token, 0);
      node = trie.end(node);
      continue;
    }
    levels_[depth] = level;
    if (!trie.tokens(node).empty()) record(node, level);
    if (mask.by_caller) rests_.clear();
    if (callers_help && rests_.size() > kRestsTriedMax) {
      mask.by_caller = true;
      rests_.clear();
    }
    if (rests_.size() > kRestsMax) return false;
    ++node;
  }
  return true;
}

bool StateMaskBuilder::is_left_unread(const TokenTrie::PlainText& text, const Level& level,
                                      FollowSets::Id behind) {
  if (level.path == LocalPaths::kDead || level.exits_begin != level.exits_end) return false;
  if (paths_->restarts(level.path) != 0) return false;
  if (!paths_->exits(level.path).empty() && behind != FollowSets::kDead) return false;
  const Stays& known = stays(level.path);
  return (text.ascii[0] & ~known.ascii[0]) == 0 && (text.ascii[1] & ~known.ascii[1]) == 0 &&
         (known.beyond_ascii || !text.beyond_ascii);
}

const StateMaskBuilder::Stays& StateMaskBuilder::stays(LocalPaths::Id path) {
  const auto [found, is_new] = stays_.try_emplace(path);
  if (!is_new) return found->second;
  for (uint32_t byte = 0; byte < 0x80; ++byte) {
    if (paths_->step(path, static_cast<uint8_t>(byte)) == path)
      found->second.ascii[byte / 64] |= uint64_t{1} << byte % 64;
  }
  found->second.beyond_ascii = stays_beyond_ascii(path);
  return found->second;
}

bool StateMaskBuilder::stays_beyond_ascii(LocalPaths::Id path) {
  // All characters beyond ASCII at once: after each byte range, the paths that it leads to.
  const CodePoints beyond = CodePoints({{0, 0x7F}}).complement();
  for (const CodeRange& range : beyond.ranges()) {
    bool all = true;
    for_each_utf8_sequence(range, [&](std::span<const ByteRange> sequence) {
      std::vector<LocalPaths::Id> at = {path};
      for (std::size_t i = 0; i < sequence.size() && all; ++i) {
        std::vector<LocalPaths::Id> next;
        for (const LocalPaths::Id from : at) {
          for (uint32_t byte = sequence[i].first; byte <= sequence[i].last && all; ++byte) {
            const LocalPaths::Id to = paths_->step(from, static_cast<uint8_t>(byte));
            // On the way the rule must neither end nor give up.
            all = to >= 0 && (i + 1 == sequence.size() ? to == path : paths_->exits(to).empty());
            if (std::find(next.begin(), next.end(), to) == next.end()) next.push_back(to);
          }
        }
        at = std::move(next);
      }
    });
    if (!all) return false;
  }
  return true;
}

void StateMaskBuilder::record(uint32_t node, const Level& level) {
  const uint8_t restarts =
      level.path == LocalPaths::kDead ? StateMask::kRefused : paths_->restarts(level.path);
  for (const int32_t token : vocabulary_.trie().tokens(node)) {
    if (restarts != StateMask::kRefused) inside_.emplace_back(token, restarts);
    if (restarts == 0) continue;  // allowed whatever comes behind
    for (std::size_t i = level.exits_begin; i < level.exits_end; ++i) {
      rests_.push_back({vocabulary_.bytes(token).substr(exits_[i].depth), token, exits_[i].restarts});
    }
  }
}

void StateMaskBuilder::pack_inside(bool counted, StateMask& mask) {
  for (const auto& [token, restarts] : inside_) mask.restarts_max = std::max(mask.restarts_max, restarts);
  // A list takes a word per token, bits a word per 32 of the vocabulary.
  if (inside_.size() <= vocabulary_.mask_words()) {
    mask.form = StateMask::Form::kList;
    for (const auto& [token, restarts] : inside_) {
      mask.tokens.push_back(token);
      if (counted) mask.restarts.push_back(restarts);
    }
    mask.tokens.shrink_to_fit();
    return;
  }
  mask.form = StateMask::Form::kBits;
  mask.bits.resize(vocabulary_.mask_words());
  if (counted) mask.restarts.assign(vocabulary_.size(), StateMask::kRefused);
  for (const auto& [token, restarts] : inside_) {
    const auto t = static_cast<uint32_t>(token);
    mask.bits[t / 32] |= 1U << t % 32;
    if (counted) mask.restarts[t] = restarts;
  }
}

void StateMaskBuilder::pack_rests(bool counted, StateMask& mask) {
  std::sort(rests_.begin(), rests_.end(), [](const RestToken& a, const RestToken& b) {
    return std::tie(a.rest, a.token, a.restarts) < std::tie(b.rest, b.token, b.restarts);
  });
  std::string_view previous;
  for (const RestToken& entry : rests_) {
    if (mask.rests.empty() || entry.rest != previous) {
      const auto differ =
          std::mismatch(previous.begin(), previous.end(), entry.rest.begin(), entry.rest.end());
      mask.rests.push_back({.begin = static_cast<uint32_t>(mask.rest_text.size()),
                            .bytes = static_cast<uint32_t>(entry.rest.size()),
                            .shared = static_cast<uint32_t>(differ.first - previous.begin()),
                            .tokens_begin = static_cast<uint32_t>(mask.rest_tokens.size())});
      mask.rest_text += entry.rest;
      previous = entry.rest;
    }
    mask.rest_tokens.push_back(entry.token);
    if (counted) mask.rest_restarts.push_back(entry.restarts);
    mask.rests.back().tokens_end = static_cast<uint32_t>(mask.rest_tokens.size());
  }
}

}  // namespace strata::grammar
