#pragma once
// Which states of conversations exist, and which of them takes a prompt furthest: the longest known prefix of
// its token ids over running sequences, idle ones, checkpoints on the device, host memory and disk (rules C3,
// C16, C17, I10; docs/conversations.md).
//
// One tree of tokens per namespace and identity, so a search never touches what belongs to another API key,
// not even for the time it takes. Thousands of snapshots of long, related conversations cost memory for what
// they do not share. A search takes microseconds: it compares the prompt's tokens with stored ones once.
//
// The index believes what it is told: the engine and the snapshot store are the ones that have the states.
// Whoever takes a state must be ready to hear that it is gone. Not for several threads: owned by one actor.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "gateway/conversations/conversation_types.h"
#include "gateway/conversations/evicted_prefixes.h"
#include "gateway/conversations/token_tree.h"
#include "services/base/status.h"

namespace strata::gateway {

struct PrefixIndexOptions {
  // States shorter than this are not used: restoring one costs more than reading so few tokens.
  uint32_t reuse_tokens_min = 16;
  // Evicted states remembered per namespace.
  uint32_t evicted_max = 1024;
  // Namespaces without any state whose evicted ones are still remembered.
  uint32_t empty_namespaces_max = 256;
};

// What is known of a state without its tokens.
struct StateInfo {
  SnapshotId id = {};
  Source source = Source::kRam;
  NamespaceId owner = {};
  IndexIdentity identity = {};
  uint32_t position = 0;  // a state exists after exactly so many tokens
  uint64_t cost_us = 0;   // expected time until a sequence can go on from it
};

struct IndexEntry {
  StateInfo info = {};
  // At least `position` tokens. More may be known than there is a state for (a running sequence reads on):
  // they say where a prompt diverges. Only looked at during the call.
  std::span<const int32_t> tokens = {};
  // Of the tokens, those that were generated here and not read as a prompt, ascending. They do not matter to
  // the search; whoever feeds the tokens again needs them (numbers contract).
  std::span<const TokenRange> generated = {};
};

// Why no more of a prompt could be reused.
struct WhyNotMore {
  MissCause cause = MissCause::kNone;
  // kNew, kDiverged, kNoCheckpoint: the first token that is not known, or not like before. kEvicted,
  // kOptionsChanged, kIdentity: the position of the state that could have been.
  uint32_t at_token = 0;
  // kDiverged: somebody who goes on with other tokens there. kOptionsChanged, kIdentity: that state.
  std::optional<SnapshotId> entry = {};
};

struct PrefixMatch {
  std::optional<StateInfo> state = {};  // its position is what can be reused
  uint32_t known_tokens = 0;            // of the prompt, that somebody in sight has read, with this identity
  WhyNotMore why = {};

  uint32_t reused_tokens() const { return state ? state->position : 0; }
};

enum class Removal : uint8_t {
  kEvicted,   // it had to make room, or was lost: remembered, so that "evicted" can be said
  kConsumed,  // taken over by a sequence, replaced by a longer one, or dropped because somebody said so
};

struct IndexStats {
  std::array<uint64_t, 5> own = {};    // states by Source, of namespaces
  std::array<uint64_t, 5> roots = {};  // and shared ones
  uint64_t tokens = 0;                 // stored
  uint64_t nodes = 0;
  uint64_t namespaces = 0;
  uint64_t evicted_remembered = 0;

  uint64_t states() const;
};

class PrefixIndex {
 public:
  explicit PrefixIndex(PrefixIndexOptions options = {});

  // The state to continue a prompt from: of those in `owner` or shared, with this identity, the one with the
  // largest position that leaves at least one token to be fed (its output is needed; rule C6). Of equal
  // positions the one with the faster source, then the lower cost, then the lower id.
  PrefixMatch find(std::span<const int32_t> tokens, const NamespaceId& owner,
                   const IndexIdentity& identity) const;

  // instance: of the process that keeps the state. kAborted: that process is gone, or was never announced.
  // kAlreadyExists: the id. kInvalidArgument: position is 0 or beyond the tokens, generated ranges are empty
  // or do not rise, or a shared root brings tokens behind its position (everybody would see where these go
  // on).
  Status add(uint64_t instance, const IndexEntry& entry);
  // kNotFound: no such state, which is normal when an eviction and a removal cross.
  Status remove(const SnapshotId& id, Removal why);
  // The same state somewhere else, of the same holder: RAM and disk, live, running and checkpoint.
  // kNotFound; kInvalidArgument: the holder would change (that is a new state, with a new id).
  Status move(const SnapshotId& id, Source source, uint64_t cost_us);

  // A process has started: what its predecessor kept is gone at once, and this is what it has. The first
  // fault of `entries` is returned after all others have been added. instance: never 0.
  Status replace(Holder holder, uint64_t instance, std::span<const IndexEntry> entries);

  std::optional<StateInfo> get(const SnapshotId& id) const;
  // Up to its position; empty: no such state.
  std::vector<int32_t> tokens(const SnapshotId& id) const;
  std::vector<TokenRange> generated(const SnapshotId& id) const;
  IndexStats stats() const;

 private:
  using Slot = TokenTree::Handle;

  struct Record {
    StateInfo info;
    TokenTree::NodeId state_node = TokenTree::kNoNode;
    TokenTree::NodeId tail_node = TokenTree::kNoNode;  // kNoNode: no tokens behind the position
    uint64_t prefix_hash = 0;
    std::vector<TokenRange> generated = {};  // up to its position
    bool used = false;
  };
  struct Tree {
    IndexIdentity identity;
    TokenTree tokens;
  };
  struct Space {
    explicit Space(std::size_t evicted_max) : evicted(evicted_max) {}
    std::vector<Tree> trees;  // few: one per identity
    EvictedPrefixes evicted;
    uint64_t emptied = 0;  // when it lost its last tree, in removals
  };
  struct Search {
    const Record* best = nullptr;  // at a position worth it
    const Record* any = nullptr;   // the largest position at all
    TokenTree::Found found = {};
    const TokenTree* tree = nullptr;
  };

  Search search(const Tree& tree, std::span<const int32_t> tokens) const;
  bool is_root(const StateInfo& info) const { return info.owner == shared_; }
  static bool better(const Record& a, const Record& b);
  const Space* space_of(const NamespaceId& id) const;
  // space: const or not.
  template <class AnySpace>
  static auto tree_of(AnySpace& space, const IndexIdentity& identity) {
    const auto found = std::ranges::find(space.trees, identity, &Tree::identity);
    return found == space.trees.end() ? nullptr : &*found;
  }
  WhyNotMore why_not_more(std::span<const int32_t> tokens, const IndexIdentity& identity,
                          std::span<const Space* const> spaces, const Search& own, uint32_t reused) const;

  void put(const IndexEntry& entry);
  void erase(Slot slot, Removal why);
  void forget_oldest_empty_space();

  PrefixIndexOptions options_;
  NamespaceId shared_ = shared_namespace();
  std::array<uint64_t, 2> instances_ = {};  // by Holder; 0: none yet
  std::unordered_map<NamespaceId, Space, snapshot::Hash128Hasher> spaces_;
  std::vector<Record> records_;
  std::vector<Slot> free_;
  std::unordered_map<SnapshotId, Slot, snapshot::Hash128Hasher> slots_;
  IndexStats counts_;  // own and roots only
  uint64_t removals_ = 0;
  std::size_t empty_spaces_ = 0;
};

}  // namespace strata::gateway
