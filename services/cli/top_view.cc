#include "services/cli/top_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "services/cli/text.h"

namespace strata::cli {

namespace {

// A thread is far from its siblings when it is this share of the median away from it, and no less than the
// least difference, and the pool is not idle.
constexpr double kFarShare = 1.0 / 3;
constexpr double kFarLeast = 0.05;
constexpr double kIdleBusy = 0.1;
constexpr uint32_t kBarWidth = 20;
constexpr double kStageShown = 0.02;

using Labels = std::map<std::string, std::string>;

Labels labels_of(const v1::MetricSample& sample) {
  Labels labels;
  for (const auto& label : sample.labels()) labels[label.name()] = label.value();
  return labels;
}

// The counters of one process between two looks.
class Rates {
 public:
  Rates(const TopSample& before, const TopSample& now, const std::string& process)
      : seconds_(std::max(now.seconds - before.seconds, 1e-9)) {
    const auto found = now.metrics.find(process);
    const auto earlier = before.metrics.find(process);
    // One that did not answer the first time may have counted for hours: of it nothing is known.
    if (found == now.metrics.end() || earlier == before.metrics.end()) return;
    now_ = &found->second;
    if (earlier->second.instance_id() == now_->instance_id()) before_ = &earlier->second;
  }

  // Calls visit(labels, growth per second) for each sample of a counter.
  void each(const std::string& name, const std::function<void(const Labels&, double)>& visit) const {
    if (now_ == nullptr) return;
    for (const auto& family : now_->families()) {
      if (family.name() != name) continue;
      for (const auto& sample : family.samples()) {
        const Labels labels = labels_of(sample);
        visit(labels, (sample.value() - earlier(name, labels)) / seconds_);
      }
    }
  }
  double sum(const std::string& name) const {
    double all = 0;
    each(name, [&](const Labels&, double rate) { all += rate; });
    return all;
  }
  // Of the samples with this label only.
  double sum(const std::string& name, const std::string& label, const std::string& value) const {
    double all = 0;
    each(name, [&](const Labels& labels, double rate) {
      const auto found = labels.find(label);
      if (found != labels.end() && found->second == value) all += rate;
    });
    return all;
  }

 private:
  double earlier(const std::string& name, const Labels& labels) const {
    if (before_ == nullptr) return 0;
    for (const auto& family : before_->families()) {
      if (family.name() != name) continue;
      for (const auto& sample : family.samples()) {
        if (labels_of(sample) == labels) return sample.value();
      }
    }
    return 0;
  }

  double seconds_;
  const v1::GetMetricsResponse* before_ = nullptr;  // null: it started since the first look
  const v1::GetMetricsResponse* now_ = nullptr;     // null: nothing can be said
};

void mark_different(std::vector<ThreadRow>& threads) {
  if (threads.size() < 2) return;
  std::vector<double> sorted;
  for (const ThreadRow& thread : threads) sorted.push_back(thread.busy);
  std::ranges::sort(sorted);
  const double median = sorted[sorted.size() / 2];
  if (sorted.back() < kIdleBusy) return;
  const double far = std::max(median * kFarShare, kFarLeast);
  for (ThreadRow& thread : threads) thread.differs = std::abs(thread.busy - median) > far;
}

WorkerRow make_worker(const Rates& rates, const std::string& name) {
  WorkerRow row{.name = name,
                .busy = rates.sum("strata_cpu_pool_busy_seconds_total"),
                .experts_per_second = rates.sum("strata_cpu_pool_jobs_total"),
                .bytes_per_second = rates.sum("strata_cpu_pool_bytes_read_total"),
                .threads = {}};
  std::map<uint32_t, double> busy;  // by number, not by text: 10 after 9
  rates.each("strata_cpu_pool_thread_busy_seconds_total", [&](const Labels& labels, double rate) {
    const auto thread = labels.find("thread");
    if (thread != labels.end()) busy[static_cast<uint32_t>(std::atoi(thread->second.c_str()))] = rate;
  });
  for (const auto& [thread, rate] : busy) row.threads.push_back({.busy = std::clamp(rate, 0.0, 1.0)});
  mark_different(row.threads);
  return row;
}

std::string bar(double share) {
  const auto full = static_cast<uint32_t>(share * kBarWidth + 0.5);
  return std::string(full, '#') + std::string(kBarWidth - full, '.');
}

std::string worker_text(const WorkerRow& worker, uint32_t columns) {
  std::string out =
      fmt::format("\n{}: busy {:.1f} %, {:.0f} experts/s, {:.2f} GB/s of weights\n", worker.name,
                  worker.busy * 100, worker.experts_per_second, worker.bytes_per_second * 1e-9);
  std::vector<std::string> cells;
  for (std::size_t i = 0; i < worker.threads.size(); ++i) {
    const ThreadRow& thread = worker.threads[i];
    cells.push_back(fmt::format("{:>5} {} {:>5.1f} % {}", i, bar(thread.busy), thread.busy * 100,
                                thread.differs ? '!' : ' '));
  }
  // Down the columns first, as lists are read.
  const std::size_t cell_width = cells.empty() ? 1 : cells.front().size();
  const std::size_t across = std::max<std::size_t>(1, columns / cell_width);
  const std::size_t down = (cells.size() + across - 1) / across;
  for (std::size_t row = 0; row < down; ++row) {
    for (std::size_t i = row; i < cells.size(); i += down) out += cells[i];
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  if (std::ranges::any_of(worker.threads, &ThreadRow::differs))
    out += "      ! far from the others: a core that is slow or shared, or work too small to share\n";
  return out;
}

}  // namespace

TopView make_top_view(const TopSample& before, const TopSample& now) {
  TopView view;
  const Rates gateway(before, now, "gateway"), engine(before, now, "gpu-worker"),
      cache(before, now, "cache-manager");
  // What was reused took no time to read.
  view.prompt_tokens_per_second = gateway.sum("strata_prompt_tokens_total", "source", "computed");
  view.generated_tokens_per_second = gateway.sum("strata_generated_tokens_total");
  view.exchanges_per_second = cache.sum("strata_expert_exchanges_total");
  view.decode_windows_per_second = engine.sum("strata_decode_windows_total");
  const double decoding = engine.sum("strata_decode_seconds_total");
  if (view.decode_windows_per_second > 0)
    view.decode_window_ms = decoding / view.decode_windows_per_second * 1000;
  engine.each("strata_decode_stage_seconds_total", [&](const Labels& labels, double rate) {
    const auto stage = labels.find("stage");
    if (decoding > 0 && stage != labels.end() && rate / decoding >= kStageShown)
      view.stages.emplace_back(stage->second, rate / decoding);
  });
  std::ranges::sort(view.stages, std::ranges::greater(), &std::pair<std::string, double>::second);
  const double uses = engine.sum("strata_expert_uses_total");
  const double hits = engine.sum("strata_expert_uses_total", "served_by", "vram");
  if (uses > 0) view.hit_ratio = hits / uses;
  for (const auto& process : now.cluster.processes()) {
    if (process.name().starts_with("cpu-expert-worker"))
      view.workers.push_back(make_worker(Rates(before, now, process.name()), process.name()));
  }
  return view;
}

std::string top_text(const TopSample& now, const TopView& view, uint32_t columns) {
  std::string out = fmt::format("{} {}, up {}", now.cluster.ready() ? "ready" : "not ready",
                                now.cluster.address(), duration_text(now.cluster.uptime_seconds()));
  if (now.engine)
    out += fmt::format(", {} of {} sequences", now.engine->sequences_running(), now.engine->sequences_max());
  out += fmt::format("\ntokens/s   {:.1f} of prompts, {:.1f} generated\n", view.prompt_tokens_per_second,
                     view.generated_tokens_per_second);
  out +=
      fmt::format("windows/s  {:.1f}, {:.2f} ms each", view.decode_windows_per_second, view.decode_window_ms);
  for (std::size_t i = 0; i < view.stages.size(); ++i) {
    out +=
        fmt::format("{}{} {:.0f} %", i == 0 ? ": " : ", ", view.stages[i].first, view.stages[i].second * 100);
  }
  out += fmt::format("\nexperts    {}, {:.1f} exchanges/s\n",
                     view.hit_ratio ? fmt::format("{:.1f} % hits", *view.hit_ratio * 100) : "none used",
                     view.exchanges_per_second);
  for (const WorkerRow& worker : view.workers) out += worker_text(worker, columns);
  return out;
}

}  // namespace strata::cli
