#pragma once
// The residency policy: a pure function of what it was told. No I/O, no clock, no threads; time is counted in
// tokens. The cache manager runs it live, the simulator replays traces through the same code. A new policy is
// one file (policy_lru.cc is the shortest example) and one line in policy_registry.cc.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/residency/topics.h"

namespace strata::residency {

struct ModelShape {
  uint32_t layers = 0;
  uint32_t experts = 0;  // of the layer that has most
};

struct PolicyOptions {
  ModelShape shape;
  uint32_t slots = 0;               // over all layers
  double decay_tokens = 256;        // decode tokens after which a use counts half
  std::vector<float> profile = {};  // (layers, experts) share of uses within the layer; empty: none
  std::vector<Topic> topics = {};   // learned before, with counts (layers, experts); empty: none
  std::vector<uint32_t> experts_of_layer = {};  // (layers), where some have fewer; empty: all shape.experts
};

// How many experts each layer has.
std::vector<uint32_t> experts_of_layers(const PolicyOptions& options);

struct ExpertKey {
  uint32_t layer = 0;
  uint32_t expert = 0;
  auto operator<=>(const ExpertKey&) const = default;
};

// What was used since the last look, (layers, experts) row-major, and how many tokens that comes from. A span
// is empty when there were no such tokens.
struct Usage {
  std::span<const uint32_t> decode_uses;
  uint64_t decode_tokens = 0;
  std::span<const uint32_t> prefill_uses;
  uint64_t prefill_tokens = 0;
};

// What an operator demands; replaces what was demanded before.
struct Control {
  std::vector<uint32_t> quotas;  // (layers), giving out all slots; empty: the layers share them
  std::vector<ExpertKey> pins;   // never victims, and the first to come in
};

// What sits where, as the policy sees it. A slot in an exchange is neither free nor a possible victim.
struct SlotView {
  enum class State : uint8_t { kFree, kResident, kBusy };
  State state = State::kFree;
  ExpertKey key;  // resident: the expert; busy: the incoming one
};

struct Proposal {
  uint32_t slot = 0;  // free, or the victim's
  ExpertKey incoming;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  virtual void observe(const Usage& usage) = 0;
  // At most `budget` exchanges worth making now, the most valuable first. Free slots are filled before
  // anything is exchanged. Never two proposals for one slot or for one expert, never an expert that is
  // resident or incoming, or that its layer does not have; never a pinned victim.
  virtual std::vector<Proposal> propose(std::span<const SlotView> slots, uint32_t budget) = 0;
  // How the slots are divided among the layers, (layers): what was demanded, or, where the layers share the
  // slots, how the last propose() left it.
  virtual std::span<const uint32_t> quotas() const = 0;
  // From the next propose() on. kInvalidArgument, and everything stays as it was: quotas of another number of
  // layers, above a layer's experts, or that do not give out all slots (or as many as there are experts, if
  // these are fewer); a pin twice, of no expert of the model, or more of them than slots or than the layer's
  // quota.
  virtual Status control(Control control) = 0;
  // What it has learned of topics, those it began with included; empty: this policy learns none. Until the
  // next observe().
  virtual std::span<const Topic> topics() const { return {}; }
};

// kInvalidArgument for an unknown name; the message lists the known ones.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name, PolicyOptions options);

std::vector<std::string> policy_names();  // in alphabetical order

}  // namespace strata::residency
