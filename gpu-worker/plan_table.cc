#include "gpu-worker/plan_table.h"

#include <algorithm>

#include "gpu-worker/plan.h"

namespace strata::gpu_worker {
namespace {

constexpr std::size_t kUseWidth = 13, kSizeWidth = 10;

std::string row(std::string_view use, uint64_t bytes, std::string_view why) {
  return fmt::format("{:<{}} {:>{}}  {}", use, kUseWidth, bytes_text(bytes), kSizeWidth, why);
}

void add_items(const std::vector<PlanItem>& items, std::vector<std::string>& lines) {
  for (const PlanItem& item : items) lines.push_back(row(item.use, item.bytes, item.why));
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  const auto count = static_cast<double>(bytes);
  if (bytes < uint64_t{1} << 10) return fmt::format("{} B", bytes);
  if (bytes < uint64_t{1} << 20) return fmt::format("{:.1f} KiB", count / (1 << 10));
  if (bytes < uint64_t{1} << 30) return fmt::format("{:.1f} MiB", count / (1 << 20));
  return fmt::format("{:.2f} GiB", count / (1 << 30));
}

std::vector<std::string> plan_table(const MemoryPlan& plan) {
  std::vector<std::string> lines = {fmt::format("{:<{}} {:>{}}  what for",
                                                plan.on_gpu ? "device memory" : "host memory", kUseWidth,
                                                "size", kSizeWidth)};
  add_items(plan.set_aside, lines);
  add_items(plan.items, lines);
  const uint64_t aside = total_bytes(plan.set_aside);
  lines.push_back(row("total", aside + plan.total_bytes(),
                      fmt::format("of {}", bytes_text(aside + plan.available_bytes))));
  if (plan.total_bytes() > plan.available_bytes) {
    lines.push_back(row("missing", plan.total_bytes() - plan.available_bytes, "it does not fit"));
  } else {
    lines.push_back(row("left", plan.left_bytes(), ""));
    while (lines.back().ends_with(' ')) lines.back().pop_back();
  }
  if (plan.host_items.empty()) return lines;
  lines.push_back(fmt::format("{:<{}} {:>{}}  what for", "host memory", kUseWidth, "size", kSizeWidth));
  add_items(plan.host_items, lines);
  return lines;
}

}  // namespace strata::gpu_worker
