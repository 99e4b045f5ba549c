// What the planner found, for people and for programs (planner.h).
#include <algorithm>
#include <boost/json.hpp>

#include "gpu-worker/plan_table.h"
#include "services/cli/planner.h"

namespace strata::cli {

namespace json = boost::json;

namespace {

using gpu_worker::bytes_text;
using gpu_worker::MemoryPlan;
using gpu_worker::PlanItem;

double percent_of(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string row(std::string_view name, std::string_view value) {
  return fmt::format("{:<13} {}\n", name, value);
}

std::string heading(const PlanSubject& subject) {
  return fmt::format("{}{}, {} of host memory\n", subject.model,
                     subject.synthetic ? " (only its shape; nothing is trained)" : "",
                     bytes_text(subject.ram_bytes));
}

std::string hits_text(const PlanSubject& subject, const PlannedMachine& machine) {
  if (!machine.hit_rate) return "unknown: no routing profile of this model (experts.profile, --profile)";
  return fmt::format("{:.1f}% of {}, if the most used experts sat still; residency that follows gets more",
                     100 * *machine.hit_rate, subject.profile_path);
}

std::string ram_text(const PlanSubject& subject, const PlannedMachine& machine) {
  const uint64_t needed = machine.ram_needed();
  std::string text =
      fmt::format("{} needed: {} for experts that are not resident, {} for the token embedding, {} taken",
                  bytes_text(needed), bytes_text(machine.missing_experts_bytes),
                  bytes_text(machine.tables_bytes), bytes_text(machine.pinned_bytes));
  return needed <= subject.ram_bytes
             ? text + fmt::format("; {} left", bytes_text(subject.ram_bytes - needed))
             : text + fmt::format("; {} TOO LITTLE: that much of the experts is read from the disk each time",
                                  bytes_text(needed - subject.ram_bytes));
}

json::array items_json(const std::vector<PlanItem>& items) {
  json::array list;
  for (const PlanItem& item : items)
    list.push_back({{"use", item.use}, {"bytes", item.bytes}, {"why", item.why}, {"setting", item.setting}});
  return list;
}

}  // namespace

std::string plan_text(const PlanSubject& subject, const PlannedMachine& machine) {
  const MemoryPlan& plan = machine.plan;
  std::string text = heading(subject);
  text += machine.card_bytes == 0
              ? std::string("host device, no GPU\n\n")
              : fmt::format("cuda device, {}: {}\n\n", machine.name, bytes_text(machine.card_bytes));
  for (const std::string& line : gpu_worker::plan_table(plan)) text += line + "\n";
  text += "\n";
  text += row("slots", fmt::format("{} of {} experts ({:.1f}%)", plan.slots, plan.experts_total,
                                   percent_of(plan.slots, plan.experts_total)));
  text += row("hits", hits_text(subject, machine));
  text += row("prompts", fmt::format("{} tokens a window", plan.prefill_chunk_tokens));
  text += row("sequence", fmt::format("{} for {} tokens", bytes_text(machine.kv_bytes_per_sequence()),
                                      plan.context_tokens));
  text += row("page cache", ram_text(subject, machine));
  if (machine.disk_bytes > 0)
    text += row("disk", fmt::format("{} of n-gram table, of which a token reads a few rows",
                                    bytes_text(machine.disk_bytes)));
  if (!machine.fits.ok()) text += fmt::format("\nDoes not fit: {}\n", machine.fits.message());
  return text;
}

std::string comparison_text(const PlanSubject& subject, const std::vector<PlannedMachine>& machines) {
  std::size_t width = 4;
  for (const PlannedMachine& machine : machines) width = std::max(width, machine.name.size());
  std::string text = heading(subject);
  text += fmt::format("context {} tokens, {} sequences, {} experts of {}\n\n", subject.context_tokens,
                      machines.front().plan.sequences, machines.front().plan.experts_total,
                      bytes_text(machines.front().plan.slot_bytes));
  text += fmt::format("{:<{}}  {:>10}  {:>6}  {:>6}  {:>6}  {:>6}  {:>10}  {:>10}  {}\n", "card", width,
                      "memory", "slots", "share", "hits", "chunk", "KV", "RAM", "fits");
  std::string reasons;
  for (const PlannedMachine& machine : machines) {
    const MemoryPlan& plan = machine.plan;
    const bool ram = machine.ram_needed() <= subject.ram_bytes;
    const bool fits = machine.fits.ok();
    text += fmt::format("{:<{}}  {:>10}  {:>6}  {:>6}  {:>6}  {:>6}  {:>10}  {:>10}  {}\n", machine.name,
                        width, bytes_text(machine.card_bytes), plan.slots,
                        fmt::format("{:.1f}%", percent_of(plan.slots, plan.experts_total)),
                        machine.hit_rate ? fmt::format("{:.1f}%", 100 * *machine.hit_rate) : "-",
                        plan.prefill_chunk_tokens, bytes_text(machine.kv_bytes_per_sequence()),
                        bytes_text(machine.ram_needed()),
                        !fits ? "no"
                        : ram ? "yes"
                              : "yes, RAM short");
    if (!fits) reasons += fmt::format("{}: {}\n", machine.name, machine.fits.message());
  }
  text += fmt::format(
      "\nKV: of one sequence. RAM: for experts that are not resident, the token embedding and "
      "what the worker takes.\nHits: {}.\n",
      subject.profile == nullptr
          ? "no routing profile of this model"
          : "expected of " + subject.profile_path + ", if the most used experts sat still");
  return reasons.empty() ? text : text + "\n" + reasons;
}

std::string plan_json(const PlanSubject& subject, const std::vector<PlannedMachine>& machines) {
  json::array list;
  for (const PlannedMachine& machine : machines) {
    const MemoryPlan& plan = machine.plan;
    list.push_back({{"name", machine.name},
                    {"device", machine.card_bytes == 0 ? "host" : "cuda"},
                    {"card_bytes", machine.card_bytes},
                    {"fits", machine.fits.ok()},
                    {"error", machine.fits.ok() ? json::value(nullptr) : json::value(machine.fits.message())},
                    {"slots", plan.slots},
                    {"experts", plan.experts_total},
                    {"slot_bytes", plan.slot_bytes},
                    {"hit_rate", machine.hit_rate ? json::value(*machine.hit_rate) : json::value(nullptr)},
                    {"prefill_chunk_tokens", plan.prefill_chunk_tokens},
                    {"sequences", plan.sequences},
                    {"kv_bytes_per_sequence", machine.kv_bytes_per_sequence()},
                    {"set_aside", items_json(plan.set_aside)},
                    {"items", items_json(plan.items)},
                    {"host_items", items_json(plan.host_items)},
                    {"available_bytes", plan.available_bytes},
                    {"needed_bytes", plan.total_bytes()},
                    {"left_bytes", plan.left_bytes()},
                    {"ram_needed_bytes", machine.ram_needed()},
                    {"ram_missing_experts_bytes", machine.missing_experts_bytes},
                    {"ram_fits", machine.ram_needed() <= subject.ram_bytes},
                    {"disk_bytes", machine.disk_bytes}});
  }
  return json::serialize(json::object{{"model", subject.model},
                                      {"synthetic", subject.synthetic},
                                      {"context_tokens", subject.context_tokens},
                                      {"ram_bytes", subject.ram_bytes},
                                      {"machines", std::move(list)}});
}

}  // namespace strata::cli
