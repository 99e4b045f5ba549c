#pragma once
// Policies times slot budgets over recorded or generated conversations: what `strata simulate` shows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/residency/profile.h"
#include "services/simulation/replay.h"
#include "services/simulation/trace_folder.h"

namespace strata::simulation {

struct SlotBudget {
  std::string text;  // "10%", "512": as it was asked for
  uint32_t slots = 0;
};

// "10%" of all experts, or a number of slots; from 1 slot to all experts. kInvalidArgument.
Result<SlotBudget> parse_slot_budget(std::string_view text, uint64_t experts);

// What a policy knows at the start of a conversation.
enum class Knowledge {
  kOthers,  // the profile of all the other conversations: nothing, if there is only one
  kNothing,
  kProfile,  // SimulateOptions::profile
};

struct SimulateOptions {
  std::vector<std::string> policies;  // empty: all
  std::vector<SlotBudget> budgets;
  ReplayOptions replay;  // slots: by budget
  double decay_tokens = 32;
  Knowledge knowledge = Knowledge::kOthers;
  residency::Profile profile;
  // One arena for all conversations, one after another, as in a running cluster; not with kOthers.
  bool continuous = false;
};

struct ConversationRow {
  std::string name;
  ReplayResult result;
  double oracle = 0, belady = 0, foresight = 0;  // hit rates (bounds.h)
};

struct Row {
  std::string policy;
  SlotBudget budget;
  std::vector<ConversationRow> conversations;  // those with generated tokens

  // Means over the conversations, each as much as any other.
  double hit_rate() const;
  double prefill_hit_rate() const;  // over those with prompt tokens
  double oracle() const;
  double belady() const;
  double foresight() const;
  double least_of_oracle() const;  // the smallest hit rate of a conversation, of its oracle's
  ReplayResult total() const;
};

// Budget by budget, and within each in the order of the policies. kInvalidArgument: an unknown policy, a
// profile of another shape, no generated token in any conversation, options that exclude each other.
Result<std::vector<Row>> simulate(const NamedTrace& traces, const SimulateOptions& options);

}  // namespace strata::simulation
