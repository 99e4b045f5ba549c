// strata simulate: recorded or generated routing through residency policies, without any model.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "services/cli/commands.h"
#include "services/simulation/generate.h"
#include "services/simulation/report.h"

namespace strata::cli {
namespace {

Result<simulation::NamedTrace> traces_of(const SimulateCommandOptions& options) {
  if (options.traces.empty() == options.generate.empty())
    return fail(Code::kInvalidArgument, "give either --traces or --generate");
  if (!options.traces.empty()) return simulation::read_trace_folder(options.traces, options.layers);
  TRY(const auto spec, simulation::parse_generate_spec(options.generate));
  simulation::NamedTrace named{simulation::generate(spec), {}};
  for (uint32_t i = 0; i < spec.conversations; ++i) named.names.push_back(fmt::format("generated/{}", i));
  return named;
}

Result<simulation::SimulateOptions> options_of(const SimulateCommandOptions& options,
                                               const residency::RoutingTrace& trace) {
  simulation::SimulateOptions out;
  out.policies = options.policies;
  for (const std::string& text : options.budgets) {
    TRY(auto budget, simulation::parse_slot_budget(text, uint64_t{trace.layers} * trace.experts));
    out.budgets.push_back(std::move(budget));
  }
  out.replay.limits.exchanges_per_window = options.exchanges_per_window.value_or(trace.layers / 2.0);
  if (options.bytes_per_second > 0) out.replay.limits.bytes_per_second = options.bytes_per_second;
  out.replay.windows_per_second = options.windows_per_second;
  out.replay.windows_per_look = options.windows_per_look;
  out.replay.landing_windows = options.landing_windows;
  out.replay.prefill_chunk_tokens = options.prefill_chunk;
  out.replay.expert_bytes = options.expert_bytes;
  out.decay_tokens = options.decay_tokens;
  out.continuous = options.continuous;
  if (options.profile == "none") {
    out.knowledge = simulation::Knowledge::kNothing;
  } else if (!options.profile.empty()) {
    out.knowledge = simulation::Knowledge::kProfile;
    TRY(out.profile, residency::read_profile(options.profile));
  }
  return out;
}

std::string about(const residency::RoutingTrace& trace, const simulation::SimulateOptions& options) {
  uint64_t tokens = 0, generated = 0;
  for (const auto& conversation : trace.conversations) {
    tokens += conversation.roles.size();
    generated +=
        static_cast<uint64_t>(std::ranges::count(conversation.roles, residency::TokenRole::kGenerated));
  }
  const char* knowledge = "nothing";
  if (options.knowledge == simulation::Knowledge::kProfile) knowledge = "the profile";
  if (options.knowledge == simulation::Knowledge::kOthers && trace.conversations.size() > 1)
    knowledge = "the profile of the others";
  return fmt::format(
      "{} conversations, {} generated and {} prompt tokens, {} layers of {} experts, {} used\n"
      "at most {:.4g} exchanges per window, a look every {} windows; known at the start: {}\n",
      trace.conversations.size(), generated, tokens - generated, trace.layers, trace.experts, trace.used,
      options.replay.limits.exchanges_per_window, options.replay.windows_per_look, knowledge);
}

Status write_plot(const std::string& path, std::span<const simulation::Row> rows,
                  const residency::RoutingTrace& trace, double exchanges) {
  const std::string title = fmt::format("Hit rates, at most {:.3g} exchanges per window", exchanges);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << simulation::report_svg(rows, uint64_t{trace.layers} * trace.experts, title);
  if (!out.flush()) return fail(Code::kUnknown, "{}: cannot be written", path);
  return {};
}

}  // namespace

int run_simulate(const SimulateCommandOptions& options) {
  const auto traces = traces_of(options);
  if (!traces) return report(traces.error(), kExitFault);
  const auto simulated = options_of(options, traces->trace);
  if (!simulated) return report(simulated.error(), kExitFault);
  const auto rows = simulation::simulate(*traces, *simulated);
  if (!rows) return report(rows.error(), kExitFault);
  if (!options.plot.empty()) {
    const double exchanges = simulated->replay.limits.exchanges_per_window;
    if (Status written = write_plot(options.plot, *rows, traces->trace, exchanges); !written.ok())
      return report(written, kExitFailed);
  }
  if (options.json) {
    fmt::print("{}", simulation::report_json(*rows));
  } else {
    fmt::print("{}{}", about(traces->trace, *simulated), simulation::report_text(*rows, options.each));
  }
  return 0;
}

}  // namespace strata::cli
