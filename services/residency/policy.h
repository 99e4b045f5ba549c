#pragma once
// The residency policy: a pure function of what it was told. No I/O, no clock, no threads; time is counted in
// tokens. The cache manager runs it live, the simulator replays traces through the same code.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"

namespace strata::residency {

struct ModelShape {
  uint32_t layers = 0;
  uint32_t experts = 0;  // per layer
};

struct PolicyOptions {
  ModelShape shape;
  uint32_t slots = 0;               // over all layers
  double decay_tokens = 256;        // decode tokens after which a use counts half
  std::vector<float> profile = {};  // (layers, experts) share of uses within the layer; empty: none
};

struct ExpertKey {
  uint32_t layer = 0;
  uint32_t expert = 0;
  auto operator<=>(const ExpertKey&) const = default;
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
  // Uses since the last call, (layers, experts) row-major; tokens: how many decode tokens they come from.
  virtual void observe(std::span<const uint32_t> decode_uses, uint64_t tokens) = 0;
  // At most `budget` exchanges worth making now, the most valuable first. Free slots are filled before
  // anything is exchanged. Never two proposals for one slot or for one expert, never an expert that is
  // resident or incoming.
  virtual std::vector<Proposal> propose(std::span<const SlotView> slots, uint32_t budget) = 0;
  // Per-layer quotas, summing to options.slots, or to layers * experts if there are more slots than experts.
  virtual std::span<const uint32_t> quotas() const = 0;
};

// kInvalidArgument for an unknown name; the message lists the known ones.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name, PolicyOptions options);

}  // namespace strata::residency
