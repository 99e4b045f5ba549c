#include "services/cli/planner.h"

#include <algorithm>

#include "gpu-worker/cuda/vram_plan.h"
#include "gpu-worker/plan_table.h"
#include "services/cli/commands.h"
#include "services/cli/static_placement.h"

namespace strata::cli {
namespace {

using gpu_worker::MemoryPlan;

// What lies beside the device: experts that are not resident, and what is looked up on the host.
void add_ram(const PlanSubject& subject, PlannedMachine& machine) {
  const model::ModelWeights& weights = *subject.weights;
  uint64_t experts_bytes = 0;
  for (const model::LayerWeights& layer : weights.layers)
    experts_bytes += uint64_t{layer.moe.experts.count} * layer.moe.experts.record_bytes();
  const MemoryPlan& plan = machine.plan;
  const double missing = plan.experts_total == 0 ? 0
                                                 : 1.0 - static_cast<double>(plan.slots) /
                                                             static_cast<double>(plan.experts_total);
  machine.missing_experts_bytes = static_cast<uint64_t>(missing * static_cast<double>(experts_bytes));
  machine.tables_bytes = uint64_t{weights.embedding.rows} * weights.embedding.row_bytes;
  if (weights.config.ngram_layer >= 0)
    machine.disk_bytes = uint64_t{weights.ngram.table.rows} * weights.ngram.table.row_bytes;
}

void add_hit_rate(const PlanSubject& subject, PlannedMachine& machine) {
  if (subject.profile == nullptr) return;
  machine.hit_rate =
      hit_rate(place_by_profile(*subject.profile, machine.plan.slots), subject.profile->counts);
}

Status check_ram(const PlanSubject& subject, const PlannedMachine& machine) {
  if (machine.pinned_bytes <= subject.ram_bytes) return {};
  return fail(Code::kResourceExhausted, "not enough host memory: the worker takes {}, {} are available",
              gpu_worker::bytes_text(machine.pinned_bytes), gpu_worker::bytes_text(subject.ram_bytes));
}

}  // namespace

uint64_t PlannedMachine::kv_bytes_per_sequence() const {
  return plan.sequences == 0 ? 0 : plan.item("kv").bytes / plan.sequences;
}

Result<PlannedMachine> plan_card(const PlanSubject& subject, const Card& card) {
  const gpu_worker::cuda::VramInput vram{
      .total_bytes = card.bytes,
      .free_bytes = card.bytes > kPlanDriverBytes ? card.bytes - kPlanDriverBytes : 0};
  TRY(auto planned,
      gpu_worker::cuda::lay_out_vram(*subject.weights, *subject.settings, subject.context_tokens, vram));
  PlannedMachine machine;
  machine.name = card.name;
  machine.card_bytes = card.bytes;
  machine.plan = std::move(planned.memory);
  machine.pinned_bytes = gpu_worker::total_bytes(machine.plan.host_items);
  machine.fits = gpu_worker::check_fits(machine.plan);
  if (machine.fits.ok()) machine.fits = check_ram(subject, machine);
  add_ram(subject, machine);
  add_hit_rate(subject, machine);
  return machine;
}

PlannedMachine plan_host(const PlanSubject& subject) {
  PlannedMachine machine;
  machine.name = "host";
  machine.plan = gpu_worker::lay_out_host(*subject.weights, *subject.settings, subject.context_tokens,
                                          subject.ram_bytes);
  machine.pinned_bytes = machine.plan.total_bytes();
  machine.fits = gpu_worker::check_fits(machine.plan);
  add_ram(subject, machine);
  add_hit_rate(subject, machine);
  return machine;
}

}  // namespace strata::cli
