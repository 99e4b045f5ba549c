#pragma once
// A radix tree over token sequences: what conversations have in common is stored once. Marks sit at exact
// depths (a state after so many tokens, or the end of tokens that are known without a state there). It holds
// only what leads to a mark: nodes without marks have at least two children, everything else is merged away.
//
// Memory: 4 bytes per token that no other marked sequence shares, and about 120 bytes per node; at most two
// nodes per mark. Not for several threads.

#include <cstdint>
#include <span>
#include <vector>

namespace strata::gateway {

class TokenTree {
 public:
  using Handle = uint32_t;  // the owner's name for what a mark stands for
  using NodeId = uint32_t;  // stays the same as long as the node has a mark
  static constexpr NodeId kRoot = 0;
  static constexpr NodeId kNoNode = UINT32_MAX;

  enum class Mark : uint8_t {
    kState,  // a state exists exactly after these tokens
    kTail,   // these tokens are known, no state here
  };

  TokenTree();

  // Puts a mark after all of `tokens` (not empty). Several marks at one place are kept.
  NodeId mark(std::span<const int32_t> tokens, Mark kind, Handle handle);
  // Takes it away again, and the tokens that nothing else needs with it. The mark must be there.
  void unmark(NodeId node, Mark kind, Handle handle);

  // What a search sees on its way down.
  struct Reached {
    uint32_t depth = 0;
    std::span<const Handle> states;
  };
  struct Found {
    uint32_t common_tokens = 0;  // of the request's tokens, from the first, that are in the tree
    bool continues = false;      // the tree goes on behind them
    NodeId below = kNoNode;      // where it goes on: some_handle(below) names a mark there
  };
  // Walks along `tokens` and calls visit(Reached) for every marked state on the way, in rising depth. Work:
  // one comparison per token, one binary search per branching.
  template <class Visit>
  Found walk(std::span<const int32_t> tokens, Visit&& visit) const {
    Found found;
    NodeId at = kRoot;
    for (;;) {
      const Node& node = nodes_[at];
      if (!node.states.empty()) visit(Reached{.depth = node.depth, .states = node.states});
      const NodeId next = child_of(node, tokens, node.depth);
      if (next == kNoNode) {
        found.continues = !node.children.empty();
        found.below = found.continues ? node.children.front().node : kNoNode;
        return found;
      }
      const uint32_t same = common_of(nodes_[next].label, tokens.subspan(found.common_tokens));
      found.common_tokens += same;
      if (same < nodes_[next].label.size()) {
        found.continues = true;
        found.below = next;
        return found;
      }
      at = next;
    }
  }
  // One of the marks at or below a node. There is always one below the root's children.
  Handle some_handle(NodeId node) const;

  // The tokens from the root to a node.
  std::vector<int32_t> path(NodeId node) const;

  bool empty() const { return nodes_[kRoot].children.empty(); }
  uint64_t token_count() const { return token_count_; }  // stored, each shared one once
  uint64_t node_count() const { return nodes_.size() - free_.size() - 1; }

 private:
  struct Child {
    int32_t first = 0;  // the first token of its label
    NodeId node = kNoNode;
  };
  struct Node {
    std::vector<int32_t> label;   // the tokens between its parent and it; empty in the root only
    std::vector<Child> children;  // by first token, rising
    std::vector<Handle> states, tails;
    NodeId parent = kNoNode;
    uint32_t depth = 0;  // tokens from the root to its end
  };

  NodeId child_of(const Node& node, std::span<const int32_t> tokens, uint32_t at) const;
  static uint32_t common_of(std::span<const int32_t> label, std::span<const int32_t> tokens);
  NodeId new_node();
  void add_child(NodeId parent, NodeId child);
  NodeId add_leaf(NodeId parent, std::span<const int32_t> label);
  NodeId split(NodeId node, uint32_t label_tokens);
  void prune(NodeId node);
  void merge_into_child(NodeId node);

  std::vector<Node> nodes_;  // of which those in free_ are unused
  std::vector<NodeId> free_;
  uint64_t token_count_ = 0;
};

}  // namespace strata::gateway
