// strata probe: what coming back to a conversation costs, measured like a client, through HTTP.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "services/cli/bench_cluster.h"
#include "services/cli/bench_folder.h"
#include "services/cli/cluster_client.h"
#include "services/cli/commands.h"
#include "services/cli/probe_report.h"
#include "services/cli/write_text.h"

namespace strata::cli {

namespace {

std::atomic<bool> stop_asked{false};  // by a signal
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers may not wait");

ProbeAsk ask_at(const Url& url) {
  return [url](const ProbeRequest& request) { return ask_chat(url, request, &stop_asked); };
}

uint64_t seed_of(const ProbeOptions& options) {
  if (options.seed) return *options.seed;
  // What an earlier run left in a cluster or on its disk must not be found: its reads would not be cold.
  constexpr uint64_t kMask = 0xFFFFFFFF;  // short enough to be typed
  return static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) / 1000 & kMask;
}

// Runs the patterns one after another. One that does not fit the context is left out where there are others.
Status measure(const Url& url, const std::vector<std::string>& patterns, ProbeReport& report) {
  TRY(const ServedModel model, served_model(url, &stop_asked));
  report.model = model.name;
  report.plan.context_tokens = model.context_tokens;
  const ProbeAsk ask = ask_at(url);
  TRY(const TokenRate rate, measure_token_rate(report.plan.seed, ask));
  for (const std::string& pattern : patterns) {
    std::fprintf(stderr, "%s\n", pattern.c_str());
    auto result = run_probe_pattern(pattern, report.plan, rate, ask);
    if (result) {
      report.results.push_back(*std::move(result));
    } else if (result.error().code() == Code::kOutOfRange && patterns.size() > 1) {
      report.left_out.emplace_back(pattern, result.error().message());
    } else {
      return result.error();
    }
  }
  return {};
}

// Starts a cluster of these settings, measures it, ends it.
Status measure_own(const config::LoadOptions& load, const std::vector<std::string>& patterns,
                   ProbeReport& report) {
  TRY(const BenchFolder folder, BenchFolder::create(std::filesystem::temp_directory_path()));
  TRY(const auto cluster, BenchCluster::start({.load = load,
                                               .run_dir = folder.run_dir(),
                                               .log_path = folder.log_path(),
                                               .cancelled = &stop_asked}));
  const Status measured = measure(cluster.url(), patterns, report);
  // Why it broke off is in the log of the cluster, if that has ended.
  if (!measured.ok() && measured.code() != Code::kCancelled) TRY_OK(cluster.check());
  return measured;
}

config::LoadOptions against(const ProbeOptions& options) {
  config::LoadOptions load = options.load;
  load.sets.insert(load.sets.end(), options.against.begin(), options.against.end());
  return load;
}

// A fresh cluster for each half: side by side, the one would work (and park) while the other is measured.
Result<double> step_seconds(const config::LoadOptions& load, const ProbePlan& plan) {
  ProbeReport half{.model = {}, .plan = plan, .results = {}, .left_out = {}, .pairs = {}, .against = {}};
  TRY_OK(measure_own(load, {"loop"}, half));
  std::vector<double> seconds;
  for (const ProbeSample& sample : half.results.front().series.back().samples)
    seconds.push_back(sample.seconds);
  return median(seconds);
}

Status measure_pairs(const ProbeOptions& options, ProbeReport& report) {
  report.against = options.against;
  for (uint32_t i = 0; i < options.pairs; ++i) {
    std::fprintf(stderr, "pair %u of %u\n", i + 1, options.pairs);
    ProbePlan plan = report.plan;
    plan.seed += i + 1;
    ProbePair pair;
    for (const bool first : {true, false}) {
      // Each setting is first in every other pair, so that what changes in time hits both.
      const bool as_configured = first == (i % 2 == 0);
      TRY((as_configured ? pair.step_s : pair.against_s),
          step_seconds(as_configured ? options.load : against(options), plan));
    }
    report.pairs.push_back(pair);
  }
  return {};
}

Result<ProbeReport> probe(const ProbeOptions& options) {
  ProbeReport report;
  report.plan = {.conversations = options.conversations,
                 .tokens = options.tokens,
                 .rounds = options.rounds,
                 .steps = options.steps,
                 .answer_tokens = options.answer_tokens,
                 .seed = seed_of(options)};
  if (options.pairs > 0 && options.pattern != "loop" && options.pattern != "all")
    return fail(Code::kInvalidArgument, "--pairs are pairs of agent loops: strata probe loop");
  std::vector<std::string> patterns = {options.pattern};
  if (options.pattern == "all") patterns.assign(kProbePatterns.begin(), kProbePatterns.end());
  if (options.load.path.empty()) {
    TRY(const Url url, api_url(options.url, options.run_dir));
    TRY_OK(measure(url, patterns, report));
    return report;
  }
  // Faults of either half before the work.
  TRY_OK(config::load(options.load).map([](const auto&) {}));
  if (options.pairs > 0) TRY_OK(config::load(against(options)).map([](const auto&) {}));
  TRY_OK(measure_own(options.load, patterns, report));
  TRY_OK(measure_pairs(options, report));
  return report;
}

int failed(const Status& status) {
  const bool fault = status.code() == Code::kInvalidArgument || status.code() == Code::kNotFound ||
                     status.code() == Code::kOutOfRange;
  return report(status, fault ? kExitFault : exit_code_of(status));
}

}  // namespace

int run_probe(const ProbeOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, [](int) { stop_asked.store(true); });
  const auto found = probe(options);
  if (!found) return failed(found.error());
  std::fputs((options.json ? probe_json(*found) : probe_text(*found)).c_str(), stdout);
  if (!options.plot.empty()) {
    if (const Status written = write_text(options.plot, probe_svg(*found)); !written.ok())
      return report(written, kExitFailed);
  }
  if (probe_found_wrong(*found))
    return report(fail(Code::kDataLoss, "a greedy answer was another one after a switch"), kExitFailed);
  return 0;
}

}  // namespace strata::cli
