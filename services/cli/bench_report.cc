#include "services/cli/bench_report.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "services/base/build_info.h"

namespace strata::cli {

namespace json = boost::json;

namespace {

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f}%", *share * 100) : "-";
}

json::value optional_json(const std::optional<double>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

std::string subject_text(const BenchSubject& subject) {
  std::string out = fmt::format(
      "{}: {:.2f} GB, {} device, {} numerics, {} CPUs\n"
      "context {} tokens, {} sequences, {} of {} experts fit the arena\n",
      subject.model, static_cast<double>(subject.model_bytes) * 1e-9, subject.device, subject.numerics,
      subject.cpus, subject.context_tokens, subject.sequences, subject.expert_slots, subject.experts_total);
  if (subject.write_seconds > 0) out += fmt::format("model written in {:.1f} s, ", subject.write_seconds);
  return out + fmt::format("cluster ready after {:.1f} s\n", subject.start_seconds);
}

// What exchanges cost the windows: their overlap with decoding is the point of them.
std::string exchange_text(const DecodeResult& r) {
  if (r.windows == 0) return "";
  const double window_seconds = r.windows * r.window_ms * 1e-3;
  return fmt::format(
      "{:>7}: {:.0f} exchanges; {:.0f} windows waited {:.6f} s for them in all, {:.4f}% of their time, "
      "{:.6f} s per 1,000 windows\n",
      r.clients, r.exchanges, r.windows, r.exchange_wait_seconds,
      100 * r.exchange_wait_seconds / window_seconds, 1000 * r.exchange_wait_seconds / r.windows);
}

// What a grammar costs: the result before is of the same clients without one.
std::string constraint_text(const std::vector<DecodeResult>& results) {
  std::string out;
  for (std::size_t i = 1; i < results.size(); ++i) {
    const DecodeResult &free = results[i - 1], &held = results[i];
    if (!held.constrained || free.window_ms == 0) continue;
    out += fmt::format("{:>7}: windows under a grammar take {:.3f} ms, {:+.1f}%\n", held.clients,
                       held.window_ms, 100 * (held.window_ms / free.window_ms - 1));
  }
  return out;
}

std::string clients_text(const DecodeResult& result) {
  return fmt::format("{} client{}{}", result.clients, result.clients == 1 ? "" : "s",
                     result.constrained ? ", constrained" : "");
}

std::string decode_text(const std::vector<DecodeResult>& results) {
  std::string out = fmt::format("\n{:>7} {:>10} {:>12} {:>12} {:>11} {:>8} {:>11}\n", "clients", "tok/s",
                                "first token", "median pause", "p99 pause", "hits", "window");
  for (const DecodeResult& r : results) {
    out += fmt::format("{:>7} {:>10.1f} {:>9.1f} ms {:>9.2f} ms {:>8.2f} ms {:>8} {:>8.2f} ms{}\n", r.clients,
                       r.tokens_per_second, r.first_token_ms, r.pause_ms_median, r.pause_ms_p99,
                       percent(r.hit_rate), r.window_ms, r.constrained ? "  constrained" : "");
  }
  out += constraint_text(results);
  for (const DecodeResult& r : results) out += exchange_text(r);
  for (const DecodeResult& r : results) {
    out += fmt::format("\ndecode window of {}, ms by phase\n", clients_text(r));
    for (const auto& [phase, ms] : r.phase_ms) out += fmt::format("  {:<14} {:>8.3f}\n", phase, ms);
  }
  return out;
}

std::string prefill_text(const BenchReport& report) {
  std::string out = fmt::format("\n{:>7} {:>10} {:>12} {:>8}\n", "prompt", "tok/s", "first token", "hits");
  for (const PrefillResult& r : report.prefill) {
    out += fmt::format("{:>7} {:>10.1f} {:>9.1f} ms {:>8}\n", r.tokens, r.tokens_per_second, r.first_token_ms,
                       percent(r.hit_rate));
  }
  for (const uint32_t tokens : report.prefill_left_out)
    out += fmt::format("{:>7} left out: longer than the context\n", tokens);
  return out;
}

std::string bytes_text(const std::string& what, const std::map<std::string, double>& bytes) {
  std::string out;
  double sum = 0;
  for (const auto& [use, count] : bytes) {
    if (count > 0) out += fmt::format("  {:<14} {:>10.1f} MB\n", use, count * 1e-6);
    sum += count;
  }
  return out.empty() ? out : fmt::format("\n{}: {:.1f} MB\n{}", what, sum * 1e-6, out);
}

json::array decode_json(const std::vector<DecodeResult>& results) {
  json::array out;
  for (const DecodeResult& r : results) {
    json::object phases;
    for (const auto& [phase, ms] : r.phase_ms) phases[phase] = ms;
    out.push_back(
        json::object{{"clients", r.clients},
                     {"constrained", r.constrained},
                     {"tokens", r.tokens},
                     {"tokens_per_second", r.tokens_per_second},
                     {"first_token_ms", r.first_token_ms},
                     {"pause_ms", json::object{{"median", r.pause_ms_median}, {"p99", r.pause_ms_p99}}},
                     {"hit_rate", optional_json(r.hit_rate)},
                     {"windows", r.windows},
                     {"window_ms", r.window_ms},
                     {"exchanges", r.exchanges},
                     {"exchange_wait_seconds", r.exchange_wait_seconds},
                     {"phase_ms", std::move(phases)}});
  }
  return out;
}

json::array prefill_json(const std::vector<PrefillResult>& results) {
  json::array out;
  for (const PrefillResult& r : results) {
    out.push_back(json::object{{"tokens", r.tokens},
                               {"tokens_per_second", r.tokens_per_second},
                               {"first_token_ms", r.first_token_ms},
                               {"hit_rate", optional_json(r.hit_rate)}});
  }
  return out;
}

}  // namespace

std::string synthetic_note(const BenchSubject& subject) {
  std::string what;
  if (!subject.synthetic_weights.empty()) what = fmt::format("weights ({})", subject.synthetic_weights);
  if (!subject.synthetic_routing.empty())
    what += fmt::format("{}routing ({})", what.empty() ? "" : " and ", subject.synthetic_routing);
  return what.empty() ? "" : fmt::format("SYNTHETIC {}: speeds only, answers mean nothing", what);
}

std::string bench_text(const BenchReport& report) {
  const std::string note = synthetic_note(report.subject);
  std::string out = note.empty() ? "" : note + "\n";
  out += subject_text(report.subject);
  out += fmt::format("warmed up with {} tokens in {:.1f} s, hits {}{}\n", report.warm_up.tokens,
                     report.warm_up.seconds, percent(report.warm_up.hit_rate),
                     report.warm_up.settled ? "" : " and still changing");
  if (!report.decode.empty()) out += decode_text(report.decode);
  if (!report.prefill.empty() || !report.prefill_left_out.empty()) out += prefill_text(report);
  out += bytes_text("device memory", report.device_bytes);
  return out + bytes_text("host memory", report.host_bytes);
}

std::string bench_json(const BenchReport& report) {
  const BenchSubject& s = report.subject;
  const auto bytes = [](const std::map<std::string, double>& uses) {
    json::object out;
    for (const auto& [use, count] : uses) out[use] = count;
    return out;
  };
  json::array left_out(report.prefill_left_out.begin(), report.prefill_left_out.end());
  const json::object out{{"strata", json::object{{"version", version()}, {"commit", commit()}}},
                         {"synthetic", json::object{{"weights", !s.synthetic_weights.empty()},
                                                    {"routing", !s.synthetic_routing.empty()},
                                                    {"model", s.synthetic_weights},
                                                    {"routing_spec", s.synthetic_routing},
                                                    {"note", synthetic_note(s)}}},
                         {"model", s.model},
                         {"model_bytes", s.model_bytes},
                         {"device", s.device},
                         {"numerics", s.numerics},
                         {"cpus", s.cpus},
                         {"context_tokens", s.context_tokens},
                         {"sequences", s.sequences},
                         {"expert_slots", s.expert_slots},
                         {"experts_total", s.experts_total},
                         {"write_seconds", s.write_seconds},
                         {"start_seconds", s.start_seconds},
                         {"warm_up", json::object{{"tokens", report.warm_up.tokens},
                                                  {"seconds", report.warm_up.seconds},
                                                  {"hit_rate", optional_json(report.warm_up.hit_rate)},
                                                  {"settled", report.warm_up.settled}}},
                         {"decode", decode_json(report.decode)},
                         {"prefill", prefill_json(report.prefill)},
                         {"prefill_left_out", std::move(left_out)},
                         {"memory", json::object{{"device_bytes", bytes(report.device_bytes)},
                                                 {"host_bytes", bytes(report.host_bytes)}}}};
  return json::serialize(out) + "\n";
}

}  // namespace strata::cli
