#include "gateway/conversations/prefix_index.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "gateway/conversations/prefix_hasher.h"
#include "services/base/check.h"

namespace strata::gateway {

namespace {

// Evicted prefixes of another identity must not look like one of this.
uint64_t seed_of(const IndexIdentity& identity) { return identity.all.low; }

bool rising(std::span<const TokenRange> ranges) {
  uint32_t end = 0;
  for (const TokenRange& range : ranges) {
    if (range.begin < end || range.end <= range.begin) return false;
    end = range.end;
  }
  return true;
}

}  // namespace

uint64_t IndexStats::states() const {
  return std::accumulate(own.begin(), own.end(), std::accumulate(roots.begin(), roots.end(), uint64_t{0}));
}

PrefixIndex::PrefixIndex(PrefixIndexOptions options) : options_(options) {
  options_.reuse_tokens_min = std::max(options_.reuse_tokens_min, 1U);
}

// ---- looking

bool PrefixIndex::better(const Record& a, const Record& b) {
  const auto key = [](const StateInfo& info) { return std::tie(info.source, info.cost_us, info.id); };
  if (a.info.position != b.info.position) return a.info.position > b.info.position;
  return key(a.info) < key(b.info);
}

const PrefixIndex::Space* PrefixIndex::space_of(const NamespaceId& id) const {
  const auto found = spaces_.find(id);
  return found == spaces_.end() ? nullptr : &found->second;
}

PrefixIndex::Search PrefixIndex::search(const Tree& tree, std::span<const int32_t> tokens) const {
  Search result{.tree = &tree.tokens};
  result.found = tree.tokens.walk(tokens, [&](const TokenTree::Reached& reached) {
    if (reached.depth >= tokens.size()) return;  // would leave nothing to feed
    const Record* best = &records_[reached.states.front()];
    for (const Slot slot : reached.states.subspan(1)) {
      if (better(records_[slot], *best)) best = &records_[slot];
    }
    result.any = best;
    if (reached.depth >= options_.reuse_tokens_min) result.best = best;
  });
  return result;
}

PrefixMatch PrefixIndex::find(std::span<const int32_t> tokens, const NamespaceId& owner,
                              const IndexIdentity& identity) const {
  std::vector<const Space*> spaces;
  for (const NamespaceId& id : {owner, shared_}) {
    const Space* space = space_of(id);
    if (space != nullptr && (spaces.empty() || spaces.front() != space)) spaces.push_back(space);
  }
  PrefixMatch match;
  Search widest;  // the one that knows most of the prompt
  const Record* best = nullptr;
  const Record* any = nullptr;
  for (const Space* space : spaces) {
    const Tree* tree = tree_of(*space, identity);
    if (tree == nullptr) continue;
    const Search one = search(*tree, tokens);
    if (one.best != nullptr && (best == nullptr || better(*one.best, *best))) best = one.best;
    if (any == nullptr) any = one.any;
    if (widest.tree == nullptr || one.found.common_tokens > widest.found.common_tokens) widest = one;
  }
  widest.best = best;
  widest.any = any;
  if (best != nullptr) match.state = best->info;
  match.known_tokens = widest.found.common_tokens;
  match.why = why_not_more(tokens, identity, spaces, widest, match.reused_tokens());
  return match;
}

WhyNotMore PrefixIndex::why_not_more(std::span<const int32_t> tokens, const IndexIdentity& identity,
                                     std::span<const Space* const> spaces, const Search& own,
                                     uint32_t reused) const {
  const auto size = static_cast<uint32_t>(tokens.size());
  const uint32_t limit = size == 0 ? 0 : size - 1;
  if (limit < options_.reuse_tokens_min) return {.cause = MissCause::kTooSmall};
  if (reused == limit) return {.cause = MissCause::kNone};

  // What would have given more, had it been here still, or been made as this request wants it.
  WhyNotMore lost;
  for (const Space* space : spaces) {
    for (const Tree& tree : space->trees) {
      if (tree.identity == identity) continue;
      const Record* other = search(tree, tokens).best;
      if (other == nullptr || other->info.position <= std::max(reused, lost.at_token)) continue;
      lost = {
          .cause = tree.identity.model == identity.model ? MissCause::kOptionsChanged : MissCause::kIdentity,
          .at_token = other->info.position,
          .entry = other->info.id};
    }
  }
  for (const Space* space : spaces) {
    const uint32_t above = std::max({reused, lost.at_token, options_.reuse_tokens_min - 1});
    if (above >= limit) break;
    const uint32_t gone = space->evicted.longest(tokens, seed_of(identity), above, limit);
    if (gone != 0) lost = {.cause = MissCause::kEvicted, .at_token = gone};
  }
  if (lost.cause != MissCause::kNone) return lost;

  const uint32_t known = own.found.common_tokens;
  if (known == reused) return {.cause = MissCause::kNew, .at_token = known};
  // Every prompt begins like every other for a few tokens: that is no conversation that went another way.
  if (known < options_.reuse_tokens_min) {
    return {.cause = own.any == nullptr ? MissCause::kNew : MissCause::kTooSmall, .at_token = known};
  }
  if (known == size || !own.found.continues) return {.cause = MissCause::kNoCheckpoint, .at_token = known};
  return {.cause = MissCause::kDiverged,
          .at_token = known,
          .entry = records_[own.tree->some_handle(own.found.below)].info.id};
}

// ---- being told

Status PrefixIndex::add(uint64_t instance, const IndexEntry& entry) {
  const StateInfo& info = entry.info;
  const auto holder = static_cast<std::size_t>(holder_of(info.source));
  if (instance == 0 || instance != instances_[holder]) {
    return fail(Code::kAborted, "state {}: instance {:016x} does not keep states now", info.id.text(),
                instance);
  }
  if (info.position == 0 || info.position > entry.tokens.size()) {
    return fail(Code::kInvalidArgument, "state {}: position {} of {} tokens", info.id.text(), info.position,
                entry.tokens.size());
  }
  if (is_root(info) && info.position != entry.tokens.size()) {
    return fail(Code::kInvalidArgument, "shared root {}: {} tokens behind its position", info.id.text(),
                entry.tokens.size() - info.position);
  }
  if (!rising(entry.generated)) {
    return fail(Code::kInvalidArgument, "state {}: ranges of generated tokens do not rise", info.id.text());
  }
  if (slots_.contains(info.id)) return fail(Code::kAlreadyExists, "state {}", info.id.text());
  put(entry);
  return {};
}

void PrefixIndex::put(const IndexEntry& entry) {
  const StateInfo& info = entry.info;
  auto [place, is_new] = spaces_.try_emplace(info.owner, options_.evicted_max);
  Space& space = place->second;
  if (!is_new && space.trees.empty()) --empty_spaces_;
  Tree* tree = tree_of(space, info.identity);
  if (tree == nullptr) tree = &space.trees.emplace_back(Tree{.identity = info.identity, .tokens = {}});

  Slot slot = static_cast<Slot>(records_.size());
  if (free_.empty()) {
    records_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  const auto prefix = entry.tokens.first(info.position);
  Record& record = records_[slot];
  record = {.info = info, .used = true};
  record.prefix_hash = PrefixHasher(prefix, seed_of(info.identity)).at(info.position);
  record.state_node = tree->tokens.mark(prefix, TokenTree::Mark::kState, slot);
  if (entry.tokens.size() > info.position) {
    record.tail_node = tree->tokens.mark(entry.tokens, TokenTree::Mark::kTail, slot);
  }
  record.generated = clipped(entry.generated, info.position);
  slots_.emplace(info.id, slot);
  ++(is_root(info) ? counts_.roots : counts_.own)[static_cast<std::size_t>(info.source)];
}

Status PrefixIndex::remove(const SnapshotId& id, Removal why) {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return fail(Code::kNotFound, "no state {}", id.text());
  erase(found->second, why);
  return {};
}

void PrefixIndex::erase(Slot slot, Removal why) {
  Record& record = records_[slot];
  Space& space = spaces_.at(record.info.owner);
  Tree* tree = tree_of(space, record.info.identity);
  CHECK(tree != nullptr, "state {} has no tree", record.info.id.text());
  if (why == Removal::kEvicted) space.evicted.remember(record.info.position, record.prefix_hash);
  // The tail first: the state's node keeps its id as long as it has its mark.
  if (record.tail_node != TokenTree::kNoNode) {
    tree->tokens.unmark(record.tail_node, TokenTree::Mark::kTail, slot);
  }
  tree->tokens.unmark(record.state_node, TokenTree::Mark::kState, slot);
  ++removals_;
  if (tree->tokens.empty()) {
    space.trees.erase(space.trees.begin() + (tree - space.trees.data()));
    if (space.trees.empty()) {
      space.emptied = removals_;
      ++empty_spaces_;
    }
  }
  --(is_root(record.info) ? counts_.roots : counts_.own)[static_cast<std::size_t>(record.info.source)];
  slots_.erase(record.info.id);
  record = {};
  free_.push_back(slot);
  if (empty_spaces_ > options_.empty_namespaces_max) forget_oldest_empty_space();
}

// Rare, and a look at every namespace: there are as many as API keys.
void PrefixIndex::forget_oldest_empty_space() {
  auto oldest = spaces_.end();
  for (auto at = spaces_.begin(); at != spaces_.end(); ++at) {
    if (!at->second.trees.empty()) continue;
    if (oldest == spaces_.end() || at->second.emptied < oldest->second.emptied) oldest = at;
  }
  CHECK(oldest != spaces_.end(), "{} empty namespaces counted", empty_spaces_);
  spaces_.erase(oldest);
  --empty_spaces_;
}

Status PrefixIndex::move(const SnapshotId& id, Source source, uint64_t cost_us) {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return fail(Code::kNotFound, "no state {}", id.text());
  StateInfo& info = records_[found->second].info;
  if (holder_of(source) != holder_of(info.source)) {
    return fail(Code::kInvalidArgument, "state {} cannot move from {} to {}", id.text(),
                source_name(info.source), source_name(source));
  }
  auto& counts = is_root(info) ? counts_.roots : counts_.own;
  --counts[static_cast<std::size_t>(info.source)];
  ++counts[static_cast<std::size_t>(source)];
  info.source = source;
  info.cost_us = cost_us;
  return {};
}

Status PrefixIndex::replace(Holder holder, uint64_t instance, std::span<const IndexEntry> entries) {
  CHECK(instance != 0, "an instance is never 0");
  for (Slot slot = 0; slot < records_.size(); ++slot) {
    if (records_[slot].used && holder_of(records_[slot].info.source) == holder) {
      erase(slot, Removal::kEvicted);
    }
  }
  instances_[static_cast<std::size_t>(holder)] = instance;
  Status first;
  for (const IndexEntry& entry : entries) {
    Status added = holder_of(entry.info.source) == holder
                       ? add(instance, entry)
                       : Status(Code::kInvalidArgument,
                                fmt::format("state {} in {} is another holder's", entry.info.id.text(),
                                            source_name(entry.info.source)));
    if (first.ok()) first = std::move(added);
  }
  return first;
}

// ---- being asked

std::optional<StateInfo> PrefixIndex::get(const SnapshotId& id) const {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return {};
  return records_[found->second].info;
}

std::vector<int32_t> PrefixIndex::tokens(const SnapshotId& id) const {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return {};
  const Record& record = records_[found->second];
  return tree_of(spaces_.at(record.info.owner), record.info.identity)->tokens.path(record.state_node);
}

std::vector<TokenRange> PrefixIndex::generated(const SnapshotId& id) const {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return {};
  return records_[found->second].generated;
}

IndexStats PrefixIndex::stats() const {
  IndexStats stats = counts_;
  stats.namespaces = spaces_.size();
  for (const auto& [id, space] : spaces_) {
    stats.evicted_remembered += space.evicted.size();
    for (const Tree& tree : space.trees) {
      stats.tokens += tree.tokens.token_count();
      stats.nodes += tree.tokens.node_count();
    }
  }
  return stats;
}

}  // namespace strata::gateway
