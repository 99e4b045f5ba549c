#include "gateway/conversations/token_tree.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"

namespace strata::gateway {

namespace {

constexpr auto by_first = [](const auto& child, int32_t token) { return child.first < token; };

}  // namespace

TokenTree::TokenTree() { nodes_.emplace_back(); }

TokenTree::NodeId TokenTree::child_of(const Node& node, std::span<const int32_t> tokens, uint32_t at) const {
  if (at >= tokens.size()) return kNoNode;
  const auto place = std::lower_bound(node.children.begin(), node.children.end(), tokens[at], by_first);
  return place == node.children.end() || place->first != tokens[at] ? kNoNode : place->node;
}

uint32_t TokenTree::common_of(std::span<const int32_t> label, std::span<const int32_t> tokens) {
  // Blocks without an exit in the middle, which compilers turn into vector code: a search that finds 30,000
  // known tokens spends all its time here.
  constexpr std::size_t kBlock = 32;
  const std::size_t limit = std::min(label.size(), tokens.size());
  std::size_t same = 0;
  for (; same + kBlock <= limit; same += kBlock) {
    uint32_t differs = 0;
    for (std::size_t i = same; i < same + kBlock; ++i) {
      differs |= static_cast<uint32_t>(label[i]) ^ static_cast<uint32_t>(tokens[i]);
    }
    if (differs != 0) break;
  }
  while (same < limit && label[same] == tokens[same]) ++same;
  return static_cast<uint32_t>(same);
}

TokenTree::NodeId TokenTree::mark(std::span<const int32_t> tokens, Mark kind, Handle handle) {
  CHECK(!tokens.empty() && tokens.size() < UINT32_MAX, "{} tokens", tokens.size());
  NodeId at = kRoot;
  while (nodes_[at].depth < tokens.size()) {
    const auto rest = tokens.subspan(nodes_[at].depth);
    const NodeId next = child_of(nodes_[at], tokens, nodes_[at].depth);
    if (next == kNoNode) {
      at = add_leaf(at, rest);
      break;
    }
    const uint32_t same = common_of(nodes_[next].label, rest);
    at = same == nodes_[next].label.size() ? next : split(next, same);
  }
  (kind == Mark::kState ? nodes_[at].states : nodes_[at].tails).push_back(handle);
  return at;
}

void TokenTree::unmark(NodeId node, Mark kind, Handle handle) {
  std::vector<Handle>& marks = kind == Mark::kState ? nodes_[node].states : nodes_[node].tails;
  const auto place = std::ranges::find(marks, handle);
  CHECK(place != marks.end(), "handle {} has no mark at node {}", handle, node);
  marks.erase(place);
  prune(node);
}

TokenTree::Handle TokenTree::some_handle(NodeId node) const {
  for (;;) {
    const Node& here = nodes_[node];
    if (!here.states.empty()) return here.states.front();
    if (!here.tails.empty()) return here.tails.front();
    CHECK(!here.children.empty(), "node {} leads to no mark", node);
    node = here.children.front().node;
  }
}

std::vector<int32_t> TokenTree::path(NodeId node) const {
  std::vector<int32_t> tokens(nodes_[node].depth);
  for (; node != kRoot; node = nodes_[node].parent) {
    const Node& here = nodes_[node];
    std::ranges::copy(here.label, tokens.begin() + (here.depth - static_cast<uint32_t>(here.label.size())));
  }
  return tokens;
}

TokenTree::NodeId TokenTree::new_node() {
  if (free_.empty()) {
    nodes_.emplace_back();
    return static_cast<NodeId>(nodes_.size() - 1);
  }
  const NodeId node = free_.back();
  free_.pop_back();
  return node;
}

void TokenTree::add_child(NodeId parent, NodeId child) {
  nodes_[child].parent = parent;
  auto& children = nodes_[parent].children;
  const int32_t first = nodes_[child].label.front();
  const auto place = std::lower_bound(children.begin(), children.end(), first, by_first);
  children.insert(place, {.first = first, .node = child});
}

TokenTree::NodeId TokenTree::add_leaf(NodeId parent, std::span<const int32_t> label) {
  const NodeId leaf = new_node();
  nodes_[leaf].label.assign(label.begin(), label.end());
  nodes_[leaf].depth = nodes_[parent].depth + static_cast<uint32_t>(label.size());
  token_count_ += label.size();
  add_child(parent, leaf);
  return leaf;
}

// Puts a new node between `node` and its parent that takes the first label_tokens of its label.
TokenTree::NodeId TokenTree::split(NodeId node, uint32_t label_tokens) {
  const NodeId upper = new_node();
  Node& below = nodes_[node];
  Node& above = nodes_[upper];
  const auto cut = below.label.begin() + label_tokens;
  above.label.assign(below.label.begin(), cut);
  above.parent = below.parent;
  above.depth = below.depth - static_cast<uint32_t>(below.label.end() - cut);
  below.label = std::vector<int32_t>(cut, below.label.end());  // without the room that the rest took

  auto& siblings = nodes_[above.parent].children;
  std::lower_bound(siblings.begin(), siblings.end(), above.label.front(), by_first)->node = upper;
  add_child(upper, node);
  return upper;
}

// Removes what leads to no mark, and the joints that no branch needs.
void TokenTree::prune(NodeId node) {
  while (node != kRoot) {
    Node& here = nodes_[node];
    if (!here.states.empty() || !here.tails.empty() || here.children.size() > 1) return;
    if (here.children.size() == 1) return merge_into_child(node);
    const NodeId parent = here.parent;
    auto& siblings = nodes_[parent].children;
    siblings.erase(std::lower_bound(siblings.begin(), siblings.end(), here.label.front(), by_first));
    token_count_ -= here.label.size();
    here = Node{};
    free_.push_back(node);
    node = parent;
  }
}

// The child keeps its id: others may have a mark there.
void TokenTree::merge_into_child(NodeId node) {
  Node& here = nodes_[node];
  const NodeId child = here.children.front().node;
  std::vector<int32_t> label;
  label.reserve(here.label.size() + nodes_[child].label.size());
  label.insert(label.end(), here.label.begin(), here.label.end());
  label.insert(label.end(), nodes_[child].label.begin(), nodes_[child].label.end());
  nodes_[child].label = std::move(label);
  nodes_[child].parent = here.parent;
  auto& siblings = nodes_[here.parent].children;
  std::lower_bound(siblings.begin(), siblings.end(), here.label.front(), by_first)->node = child;
  here = Node{};
  free_.push_back(node);
}

}  // namespace strata::gateway
