#include "services/cli/bench_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "services/cli/cluster_client.h"
#include "services/cli/metric_totals.h"
#include "services/grammar/bench_grammar.h"

namespace strata::cli {

namespace {

constexpr uint32_t kShortPrompt = 8;
constexpr auto kProbeInterval = std::chrono::milliseconds(250);  // the engine's probe writes every 100 ms
constexpr double kSettled = 0.01;  // change of the hit rate from one round of warming up to the next

double milliseconds(double seconds) { return seconds * 1e3; }

std::optional<double> hit_rate(const MetricTotals& grown) {
  const auto uses = grown.by("strata_expert_uses_total", "served_by");
  double all = 0;
  for (const auto& [where, count] : uses) all += count;
  const auto resident = uses.find("vram");
  if (all == 0) return std::nullopt;
  return resident == uses.end() ? 0 : resident->second / all;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<std::size_t>(at)];
}

class Bench {
 public:
  Bench(const BenchMeasureOptions& options, BenchReport& report) : o_(options), report_(report) {}

  Status run() {
    TRY_OK(describe());
    TRY_OK(warm_up());
    for (const uint32_t clients : o_.clients) {
      TRY_OK(decode(clients, ""));
      if (o_.constrained) TRY_OK(decode(clients, grammar::kBenchGrammar));
    }
    for (const uint32_t tokens : o_.prompts) TRY_OK(prefill(tokens));
    return memory();
  }

 private:
  Result<MetricTotals> look() const {
    std::this_thread::sleep_for(kProbeInterval);
    TRY(const auto metrics, get_metrics(o_.run_dir, "gpu-worker"));
    return MetricTotals(metrics);
  }

  std::vector<BenchRequest> requests(uint32_t clients, uint32_t prompt_tokens, uint32_t tokens,
                                     const std::string& grammar = {}) {
    std::vector<BenchRequest> made;
    for (uint32_t i = 0; i < clients; ++i) {
      ++number_;  // no prompt is sent twice: what is known of it would be reused
      made.push_back({.prompt = o_.prompt(prompt_tokens, number_),
                      .max_tokens = tokens,
                      .seed = number_,
                      .never = o_.never,
                      .grammar = grammar});
    }
    return made;
  }

  Status describe() {
    TRY(const auto engine, get_engine(o_.run_dir));
    BenchSubject& subject = report_.subject;
    subject.model = engine.model_name();
    subject.device = engine.device_type();
    subject.numerics = engine.numerics();
    subject.context_tokens = engine.context_tokens();
    subject.sequences = engine.sequences_max();
    subject.expert_slots = engine.expert_slots();
    subject.experts_total = engine.experts_total();
    return {};
  }

  // Rounds of answers until the hit rate stands still and the arena is full.
  Status warm_up() {
    WarmUp& warm_up = report_.warm_up;
    if (o_.warm_up_tokens == 0) return {};
    const uint32_t clients = o_.clients.empty() ? 1 : std::ranges::max(o_.clients);
    const uint32_t tokens = answer_tokens(std::max(o_.warm_up_tokens / clients / kRounds, uint32_t{1}));
    const auto begin = std::chrono::steady_clock::now();
    while (!warm_up.settled && warm_up.tokens < o_.warm_up_tokens) {
      TRY(const auto before, look());
      TRY(const auto answers, complete_all(o_.url, requests(clients, kShortPrompt, tokens), o_.cancelled));
      for (const BenchAnswer& answer : answers) warm_up.tokens += answer.answer_tokens;
      TRY(const auto after, look());
      const auto rate = hit_rate(after.since(before));
      const bool full = after.sum("strata_expert_slots_used") >= after.sum("strata_expert_slots");
      warm_up.settled = full && rate && warm_up.hit_rate && std::abs(*rate - *warm_up.hit_rate) < kSettled;
      warm_up.hit_rate = rate;
      std::fprintf(stderr, "warming up: %llu tokens, %.1f%% hits\n",
                   static_cast<unsigned long long>(warm_up.tokens), rate.value_or(0) * 100);
    }
    warm_up.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return {};
  }

  // Exchanges are counted by the cache manager; without one there are none.
  double exchanges() const {
    const auto metrics = get_metrics(o_.run_dir, "cache-manager");
    return metrics ? MetricTotals(*metrics).sum("strata_expert_exchanges_total") : 0;
  }

  Status decode(uint32_t clients, const std::string& grammar) {
    if (!grammar.empty()) {  // is compiled, as one is that came before
      TRY_OK(
          complete(o_.url, requests(1, kShortPrompt, 1, grammar)[0], o_.cancelled).map([](const auto&) {}));
    }
    TRY(const auto before, look());
    const double exchanges_before = exchanges();
    TRY(const auto answers,
        complete_all(o_.url, requests(clients, kShortPrompt, answer_tokens(o_.tokens), grammar),
                     o_.cancelled));
    TRY(const auto after, look());
    const MetricTotals grown = after.since(before);
    DecodeResult result{
        .clients = clients, .constrained = !grammar.empty(), .hit_rate = hit_rate(grown), .phase_ms = {}};
    double first = answers.front().first, last = answers.front().last;
    uint64_t behind_first = 0;
    std::vector<double> pauses;
    for (const BenchAnswer& answer : answers) {
      result.tokens += answer.answer_tokens;
      behind_first += answer.answer_tokens - 1;
      result.first_token_ms += milliseconds(answer.first_token_seconds()) / clients;
      first = std::min(first, answer.first);
      last = std::max(last, answer.last);
      pauses.insert(pauses.end(), answer.pauses.begin(), answer.pauses.end());
    }
    if (last > first) result.tokens_per_second = static_cast<double>(behind_first) / (last - first);
    result.pause_ms_median = milliseconds(percentile(pauses, 0.5));
    result.pause_ms_p99 = milliseconds(percentile(pauses, 0.99));
    result.windows = grown.sum("strata_decode_windows_total");
    result.exchanges = std::max(0.0, exchanges() - exchanges_before);
    if (result.windows > 0) {
      result.window_ms = milliseconds(grown.sum("strata_decode_seconds_total")) / result.windows;
      for (const auto& [phase, seconds] : grown.by("strata_decode_stage_seconds_total", "stage"))
        if (seconds > 0) result.phase_ms.emplace_back(phase, milliseconds(seconds) / result.windows);
      result.exchange_wait_seconds = grown.by("strata_decode_stage_seconds_total", "stage")["exchange_wait"];
      std::ranges::sort(result.phase_ms, std::greater(), &std::pair<std::string, double>::second);
    }
    std::fprintf(stderr, "decode, %u clients%s: %.1f tok/s\n", clients,
                 grammar.empty() ? "" : ", constrained", result.tokens_per_second);
    report_.decode.push_back(std::move(result));
    return {};
  }

  Status prefill(uint32_t tokens) {
    if (tokens >= report_.subject.context_tokens) {
      report_.prefill_left_out.push_back(tokens);
      return {};
    }
    TRY(const auto before, look());
    TRY(const auto answers, complete_all(o_.url, requests(1, tokens, 1), o_.cancelled));
    TRY(const auto after, look());
    const BenchAnswer& answer = answers.front();
    const double seconds = answer.first_token_seconds();
    report_.prefill.push_back({.tokens = answer.prompt_tokens,
                               .tokens_per_second = static_cast<double>(answer.prompt_tokens) / seconds,
                               .first_token_ms = milliseconds(seconds),
                               .hit_rate = hit_rate(after.since(before))});
    std::fprintf(stderr, "prefill of %u tokens: %.1f tok/s\n", tokens,
                 report_.prefill.back().tokens_per_second);
    return {};
  }

  Status memory() {
    TRY(const auto now, look());
    report_.host_bytes = now.by("strata_host_bytes", "use");
    report_.device_bytes = now.by("strata_vram_bytes", "use");
    return {};
  }

  // As many as the context holds behind a short prompt.
  uint32_t answer_tokens(uint32_t wanted) const {
    const uint32_t context = report_.subject.context_tokens;
    return std::clamp(context > kShortPrompt ? context - kShortPrompt : 1, uint32_t{1}, wanted);
  }

  static constexpr uint32_t kRounds = 20;
  const BenchMeasureOptions& o_;
  BenchReport& report_;
  uint64_t number_ = 0;
};

}  // namespace

Status measure(const BenchMeasureOptions& options, BenchReport& report) {
  return Bench(options, report).run();
}

}  // namespace strata::cli
