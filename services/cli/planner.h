#pragma once
// `strata plan`: what the memory plans of the gpu-worker (gpu-worker/plan.h, gpu-worker/cuda/vram_plan.h) say
// about machines that need not be there.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu-worker/plan.h"
#include "services/cli/cards.h"
#include "services/residency/profile.h"

namespace strata::cli {

struct PlanSubject {
  std::string model;       // what is planned, for the heading
  bool synthetic = false;  // only its shape is there
  const model::ModelWeights* weights = nullptr;
  const config::Settings* settings = nullptr;
  uint32_t context_tokens = 0;
  const residency::Profile* profile = nullptr;  // null: there is none
  std::string profile_path;
  uint64_t ram_bytes = 0;  // of the machine's memory, what is there for the cluster
};

// One machine: a GPU of that size, or none.
struct PlannedMachine {
  std::string name;         // "24.00 GiB", "RTX 4090", "host"
  uint64_t card_bytes = 0;  // 0: the host device
  gpu_worker::MemoryPlan plan;
  Status fits;                         // of the plan, and what else is too little
  std::optional<double> hit_rate;      // expected of decode uses, with a placement that stands still
  uint64_t pinned_bytes = 0;           // host memory that the worker takes for itself
  uint64_t missing_experts_bytes = 0;  // of the experts that are not resident: best kept in the page cache
  uint64_t tables_bytes = 0;           // token embedding: read on the host, too
  uint64_t disk_bytes = 0;             // n-gram table: stays on the disk
  uint64_t ram_needed() const { return pinned_bytes + missing_experts_bytes + tables_bytes; }
  uint64_t kv_bytes_per_sequence() const;
};

// kUnimplemented: a model that the device does not know.
Result<PlannedMachine> plan_card(const PlanSubject& subject, const Card& card);
PlannedMachine plan_host(const PlanSubject& subject);

// One machine in full, several side by side, and for programs.
std::string plan_text(const PlanSubject& subject, const PlannedMachine& machine);
std::string comparison_text(const PlanSubject& subject, const std::vector<PlannedMachine>& machines);
std::string plan_json(const PlanSubject& subject, const std::vector<PlannedMachine>& machines);

}  // namespace strata::cli
