// strata-cache-manager: decides which experts are resident and brings them there; keeps parked conversations.

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "cache-manager/cache_probe.h"
#include "cache-manager/cache_service.h"
#include "cache-manager/exchange_actor.h"
#include "cache-manager/expert_copier.h"
#include "cache-manager/grpc_engine_link.h"
#include "cache-manager/learned_profile.h"
#include "cache-manager/snapshots/snapshot_actor.h"
#include "cache-manager/snapshots/snapshot_service.h"
#include "cache-manager/window_watch.h"
#include "services/actor/actor_system.h"
#include "services/expert/thread_plan.h"
#include "services/gguf/gguf_file.h"
#include "services/model/record_checksum.h"
#include "services/obs/log.h"
#include "services/rpc/process_main.h"
#include "services/rpc/server.h"
#include "services/shm/segment.h"
#include "services/sys/cpus.h"

namespace strata::cache_manager {
namespace {

constexpr std::chrono::milliseconds kCallTimeoutBeyondWindow{10000};
constexpr std::chrono::seconds kStopTimeout{2};

// A profile that is missing, damaged or of another model is no reason not to start: the arena then fills by
// use.
Result<residency::Profile> read_known(const std::string& path, const std::string& fingerprint) {
  auto profile = residency::read_profile(path, fingerprint);
  if (!profile && profile.error().code() != Code::kNotFound) {
    obs::warn("profile", "{} is not used: {}", path, profile.error().message());
  }
  return profile;
}

// Begins with the profile learned by an earlier run, or else with the configured one.
LearnedProfile begin_profile(const std::string& fingerprint, uint32_t layers, uint32_t experts,
                             const std::string& learned_path, const Result<residency::Profile>& configured) {
  LearnedProfile profile(fingerprint, layers, experts);
  if (auto learned = read_known(learned_path, fingerprint); learned && profile.resume(*learned).ok()) {
    obs::info("profile", "going on with {}, learned from {} tokens", learned_path, learned->tokens);
  } else if (configured && profile.begin_with(*configured).ok()) {
    obs::info("profile", "beginning with the configured profile");
  } else {
    obs::info("profile", "beginning without a profile");
  }
  return profile;
}

std::string mib_text(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string use_text(const TierUse& use) {
  return fmt::format("{}, {} of {}", use.snapshots, mib_text(use.used_bytes), mib_text(use.budget_bytes));
}

std::string disk_text(const SnapshotRoom& room) {
  if (room.disk_folder.empty()) return room.disk_problem.empty() ? "off" : "off: " + room.disk_problem;
  return use_text(room.disk) + (room.disk_problem.empty() ? "" : "; " + room.disk_problem);
}

void fill_status(const ExchangeStatus& from, const SnapshotRoom& parked, v1::GetStatusResponse& status) {
  auto fact = [&](const char* name, std::string value) {
    v1::Fact& added = *status.add_facts();
    added.set_name(name);
    added.set_value(std::move(value));
  };
  bool attached = from.attached.load(std::memory_order_relaxed);
  fact("attached", attached ? "yes" : "no");
  fact("experts resident", fmt::format("{} of {} slots", from.slots_used.load(), from.slots.load()));
  fact("exchanges",
       fmt::format("{} landed, {} in flight", from.exchanges_total.load(), from.in_flight.load()));
  fact("conversations in memory", parked.ram.budget_bytes == 0 ? "off" : use_text(parked.ram));
  fact("conversations on disk", disk_text(parked));
  status.set_state(attached ? v1::PROCESS_STATE_READY : v1::PROCESS_STATE_DEGRADED);
  if (!attached) {
    status.add_degraded("gpu-worker");
    status.set_detail("waiting for the gpu-worker");
  }
  status.set_progress(1.0);
}

// Ends the exchanges so that no slot stays reserved, and saves what was learned.
void stop_exchanges(const std::shared_ptr<ExchangeActor>& exchanges) {
  auto stopped = std::make_shared<std::promise<void>>();
  auto saved = std::make_shared<std::promise<void>>();
  actor::tell(exchanges, ExchangeActor::Stop{[stopped] { stopped->set_value(); }});
  actor::tell(exchanges,
              ExchangeActor::SaveProfile{
                  .path = {}, .only_if_changed = true, .reply = [saved](const Result<std::string>& path) {
                    if (!path)
                      obs::warn("profile", "the learned profile was not saved: {}", path.error().message());
                    saved->set_value();
                  }});
  const auto deadline = std::chrono::steady_clock::now() + kStopTimeout;
  saved->get_future().wait_until(deadline);
  stopped->get_future().wait_until(deadline);
}

// The gpu-worker is mostly told to stop at the same time, and parks what it still has.
constexpr std::chrono::milliseconds kGpuWorkerPatience{600};

// Writes what waits to be written, as far as the time allows, and gives the memory back.
void stop_snapshots(const std::shared_ptr<SnapshotActor>& snapshots) {
  auto stopped = std::make_shared<std::promise<void>>();
  actor::tell(snapshots, SnapshotActor::Stop{.reply = [stopped] { stopped->set_value(); },
                                             .gpu_worker_patience = kGpuWorkerPatience});
  stopped->get_future().wait_for(kStopTimeout);
}

int64_t unix_time_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Status run(const rpc::ProcessContext& context) {
  const config::Settings& settings = *context.settings;
  expert::stay_off_expert_cpus(settings);
  // A predecessor that was killed left its memory behind.
  if (const uint32_t removed = shm::remove_segments_of_dead_owners(context.run_id); removed > 0)
    obs::info("snapshots", "removed {} shared-memory segments of dead processes", removed);
  TRY(const SnapshotPlan plan, plan_snapshots(settings, context.run_dir, host_memory(context.run_dir)));
  TRY(auto file, gguf::GgufFile::open(settings.model_path().string()));
  TRY(auto experts, model::load_experts(file));
  std::string fingerprint = file.fingerprint();
  std::string model_name = settings.model_name().empty() ? experts.config.name : settings.model_name();

  ExchangeOptions options{.policy = settings.experts_policy().value,
                          .decay_tokens = settings.experts_decay_tokens(),
                          .rates = {.exchanges_per_window = settings.experts_exchanges_per_window(),
                                    .copy_budget = settings.experts_copy_budget(),
                                    .exchanges_in_flight = settings.experts_exchanges_in_flight()},
                          .learned_path = context.run_dir + "/learned.profile",
                          .experts_per_layer = {},
                          .record_bytes = {},
                          .static_profile = {}};
  for (const model::LayerExperts& layer : experts.layers) {
    options.experts_per_layer.push_back(layer.count);
    options.record_bytes.push_back(layer.record_bytes());
  }
  auto layers = static_cast<uint32_t>(experts.layers.size());
  uint32_t experts_max =
      *std::max_element(options.experts_per_layer.begin(), options.experts_per_layer.end());

  Result<residency::Profile> configured = fail(Code::kNotFound, "experts.profile is empty");
  if (!settings.experts_profile().empty())
    configured = read_known(settings.experts_profile().string(), fingerprint);
  LearnedProfile learned = begin_profile(fingerprint, layers, experts_max, options.learned_path, configured);
  // "static" means the configured profile and nothing else.
  if (configured) options.static_profile = configured->shares();

  auto metrics = std::make_shared<obs::Metrics>(obs::Labels{{"model", model_name}, {"worker", "cache"}});
  CacheProbe probe(*metrics, layers);
  CopyThread copier(experts, model::verifies_records(settings.experts_verify_records().value));
  DoorbellWatch watch(std::chrono::milliseconds(settings.experts_exchange_interval_ms()));
  GrpcEngineLink link({.channel = rpc::connect(context.run_dir, "gpu-worker"),
                       .model_fingerprint = fingerprint,
                       .call_timeout = std::chrono::milliseconds(settings.engine_window_budget_ms()) +
                                       kCallTimeoutBeyondWindow});
  SnapshotProbe snapshot_probe(*metrics);
  actor::ActorSystem actors(2);  // taking memory for a snapshot may take longer than an exchange may wait
  actor::ActorSystem files(1);
  auto exchanges = std::make_shared<ExchangeActor>(
      actors.make_executor(), std::move(options), std::move(learned),
      ExchangeActor::Parts{.link = &link, .copier = &copier, .watch = &watch, .probe = &probe});

  auto snapshots = std::make_shared<SnapshotActor>(
      actors.make_executor(), files.make_executor(),
      SnapshotOptions{.plan = plan,
                      .run_id = context.run_id,
                      .now_ms = unix_time_ms,
                      .available_bytes = [] { return sys::available_memory_bytes(); },
                      .disk_files = nullptr,
                      .write_pause = std::chrono::seconds(10)},
      snapshot_probe);

  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<CacheService>(exchanges));
  services.push_back(std::make_unique<SnapshotService>(snapshots));
  TRY(auto server,
      rpc::Server::start({.run_dir = context.run_dir,
                          .name = context.name,
                          .status =
                              [&](v1::GetStatusResponse& status) {
                                fill_status(exchanges->status(), snapshots->room(), status);
                              },
                          .metrics = metrics,
                          .config_hash = context.config_hash,
                          .metrics_listen = rpc::metrics_address(settings.metrics_listen(), context.name)},
                         std::move(services)));
  actor::tell(exchanges, ExchangeActor::Start{});
  actor::tell(snapshots, SnapshotActor::Start{});
  server->set_serving(true);
  rpc::wait_for_stop_signal();
  server->set_serving(false);

  stop_exchanges(exchanges);
  stop_snapshots(snapshots);
  server->stop();
  link.detach();
  actors.stop();
  files.stop();
  return {};
}

}  // namespace
}  // namespace strata::cache_manager

int main(int argc, char** argv) {
  auto context = strata::rpc::start_process(
      argc, argv, "cache-manager",
      "Keeps the experts that are used most in the arena, and parked conversations.");
  if (!context) return strata::rpc::startup_failed(context.error());
  strata::Status status = strata::cache_manager::run(*context);
  return status.ok() ? 0 : strata::rpc::startup_failed(status);
}
