#pragma once
// Results of a simulation for people, for programs, and as a drawing.

#include <span>
#include <string>

#include "services/simulation/simulate.h"

namespace strata::simulation {

// One table per slot budget; each_conversation: one per conversation, too.
std::string report_text(std::span<const Row> rows, bool each_conversation);

// An array of objects: policy, budget (as asked for), slots, hit_rate, prefill_hit_rate, oracle_hit_rate,
// belady_hit_rate, foresight_hit_rate, least_of_oracle (means over the conversations, the last their
// minimum), regret (belady_hit_rate - hit_rate), windows, exchanges, bytes (sums), and `conversations`: an
// array of the same for each, by name.
std::string report_json(std::span<const Row> rows);

// Hit rate over the share of experts that have a slot, a curve per policy and bound. experts: of all layers.
std::string report_svg(std::span<const Row> rows, uint64_t experts, const std::string& title);

}  // namespace strata::simulation
