// strata status: the supervisor's view of the processes, and what they say of themselves.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <set>

#include "services/cli/cluster_client.h"
#include "services/cli/commands.h"
#include "services/cli/text.h"

namespace strata::cli {

namespace json = boost::json;

namespace {

struct ProcessRow {
  v1::ChildProcess child;
  std::optional<v1::GetStatusResponse> own;  // nullopt: it does not answer
  std::string state, detail;
};

struct Picture {
  v1::GetClusterResponse cluster;
  std::vector<ProcessRow> processes;
  std::optional<v1::GetEngineResponse> engine;
  std::optional<v1::GetResidencyResponse> residency;
  std::set<std::string> degraded;
};

std::string state_name(v1::ChildState state) {
  switch (state) {
    case v1::CHILD_STATE_STARTING:
      return "starting";
    case v1::CHILD_STATE_READY:
      return "ready";
    case v1::CHILD_STATE_RESTARTING:
      return "restarting";
    case v1::CHILD_STATE_STOPPING:
      return "stopping";
    case v1::CHILD_STATE_STOPPED:
      return "stopped";
    default:
      return "unknown";
  }
}

// The supervisor knows whether it runs; only the process itself knows whether something is missing.
void complete(ProcessRow& row) {
  row.state = state_name(row.child.state());
  if (row.own) {
    row.detail = row.own->detail();
    bool degraded = row.own->state() == v1::PROCESS_STATE_DEGRADED;
    if (row.child.state() == v1::CHILD_STATE_READY && degraded) row.state = "degraded";
    if (row.child.state() == v1::CHILD_STATE_STARTING && row.own->progress() > 0) {
      row.detail = fmt::format("{:.0f}% loaded{}{}", row.own->progress() * 100,
                               row.detail.empty() ? "" : ", ", row.detail);
    }
  } else if (!row.child.last_exit().empty() && row.child.state() != v1::CHILD_STATE_READY) {
    row.detail = "last end: " + row.child.last_exit();
  }
}

Result<Picture> look(const std::string& run_dir) {
  Picture picture;
  TRY(picture.cluster, get_cluster(run_dir));
  for (const auto& child : picture.cluster.processes()) {
    ProcessRow& row = picture.processes.emplace_back();
    row.child = child;
    if (child.pid() != 0) {
      if (auto own = get_process(run_dir, child.name())) row.own = std::move(*own);
    }
    complete(row);
    if (child.state() != v1::CHILD_STATE_READY) picture.degraded.insert(child.name());
    if (row.own) picture.degraded.insert(row.own->degraded().begin(), row.own->degraded().end());
  }
  if (auto engine = get_engine(run_dir)) picture.engine = std::move(*engine);
  if (auto residency = get_residency(run_dir)) picture.residency = std::move(*residency);
  if (picture.engine)
    picture.degraded.insert(picture.engine->degraded().begin(), picture.engine->degraded().end());
  return picture;
}

// The cache manager knows more; without it the engine still knows its slots.
json::value residency_json(const Picture& picture) {
  json::object out;
  if (picture.engine) {
    out["slots"] = picture.engine->expert_slots();
    out["slots_used"] = picture.engine->expert_slots_used();
    out["experts_total"] = picture.engine->experts_total();
  }
  if (picture.residency) {
    out["policy"] = picture.residency->policy();
    out["attached"] = picture.residency->attached();
    out["exchanges_in_flight"] = picture.residency->exchanges_in_flight();
    out["exchanges_total"] = picture.residency->exchanges_total();
  }
  return out;
}

json::value to_json(const Picture& picture) {
  json::object out;
  out["ready"] = picture.cluster.ready();
  out["address"] = picture.cluster.address();
  out["supervisor_pid"] = picture.cluster.supervisor_pid();
  out["uptime_seconds"] = static_cast<int64_t>(picture.cluster.uptime_seconds());
  out["running_sequences"] = picture.engine ? picture.engine->sequences_running() : 0;
  json::array processes;
  for (const ProcessRow& row : picture.processes) {
    json::object process;
    process["name"] = row.child.name();
    process["pid"] = row.child.pid();
    process["state"] = row.state;
    process["restarts"] = row.child.restarts();
    process["uptime_seconds"] = static_cast<int64_t>(row.child.uptime_seconds());
    process["rss_bytes"] = row.child.rss_bytes();
    process["detail"] = row.detail;
    process["last_exit"] = row.child.last_exit();
    json::object facts;
    if (row.own) {
      for (const auto& fact : row.own->facts()) facts[fact.name()] = fact.value();
    }
    process["facts"] = std::move(facts);
    processes.push_back(std::move(process));
  }
  out["processes"] = std::move(processes);
  out["residency"] = residency_json(picture);
  json::array degraded;
  for (const std::string& name : picture.degraded) degraded.push_back(json::value(name));
  out["degraded"] = std::move(degraded);
  json::object config;
  config["path"] = picture.cluster.config_path();
  config["hash"] = picture.cluster.config_hash();
  config["stale"] = picture.cluster.config_stale();
  json::array differences;
  for (const std::string& text : picture.cluster.config_differences())
    differences.push_back(json::value(text));
  config["differences"] = std::move(differences);
  out["config"] = std::move(config);
  return out;
}

std::string memory_text(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void print_text(const Picture& picture) {
  const auto& cluster = picture.cluster;
  fmt::print("cluster    {} {}, up {}, supervisor pid {}\n", cluster.ready() ? "ready" : "not ready",
             cluster.address().empty() ? "(no address yet)" : cluster.address(),
             duration_text(cluster.uptime_seconds()), cluster.supervisor_pid());
  fmt::print("config     {} ({}){}\n", cluster.config_path(), cluster.config_hash(),
             cluster.config_stale() ? ", changed since the start:" : "");
  for (const std::string& difference : cluster.config_differences())
    fmt::print("           {}\n", difference);
  if (picture.engine) {
    const auto& engine = *picture.engine;
    fmt::print("model      {} on {}, {}, {} tokens of context\n", engine.model_name(), engine.device_type(),
               engine.numerics(), engine.context_tokens());
    fmt::print("running    {} of {} sequences\n", engine.sequences_running(), engine.sequences_max());
    fmt::print("residency  {} of {} slots used, {} experts in all", engine.expert_slots_used(),
               engine.expert_slots(), engine.experts_total());
    if (picture.residency) {
      fmt::print("; policy {}, {} exchanges, {} in flight", picture.residency->policy(),
                 picture.residency->exchanges_total(), picture.residency->exchanges_in_flight());
    }
    fmt::print("\n");
  }
  if (!picture.degraded.empty()) fmt::print("degraded   {}\n", fmt::join(picture.degraded, ", "));
  fmt::print("\n{:22} {:>8} {:11} {:>8} {:>12} {:>8}  {}\n", "process", "pid", "state", "restarts", "memory",
             "uptime", "");
  for (const ProcessRow& row : picture.processes) {
    fmt::print("{:22} {:>8} {:11} {:>8} {:>12} {:>8}  {}\n", row.child.name(),
               row.child.pid() == 0 ? "-" : std::to_string(row.child.pid()), row.state, row.child.restarts(),
               memory_text(row.child.rss_bytes()), duration_text(row.child.uptime_seconds()), row.detail);
    if (!row.own) continue;
    for (const auto& fact : row.own->facts()) fmt::print("  {}: {}\n", fact.name(), fact.value());
  }
}

}  // namespace

int run_status(const StatusOptions& options) {
  auto picture = look(options.run_dir);
  if (!picture) return report(picture.error(), exit_code_of(picture.error()));
  if (options.json) {
    fmt::print("{}\n", json::serialize(to_json(*picture)));
  } else {
    print_text(*picture);
  }
  return 0;
}

}  // namespace strata::cli
