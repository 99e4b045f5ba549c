// strata-gpu-worker: computes the model. Owns the device, the sequences, the arena and its residency; the
// window loop does the work.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gpu-worker/engine_probe.h"
#include "gpu-worker/engine_service.h"
#include "gpu-worker/expert_hub_service.h"
#include "gpu-worker/expert_workers.h"
#include "gpu-worker/host/host_device.h"
#include "gpu-worker/plan.h"
#include "gpu-worker/residency_service.h"
#include "gpu-worker/watchdog.h"
#include "gpu-worker/window_loop.h"
#include "services/actor/actor_system.h"
#include "services/gguf/gguf_file.h"
#include "services/obs/log.h"
#include "services/rpc/process_main.h"
#include "services/rpc/server.h"
#include "services/sys/cpus.h"

namespace strata::gpu_worker {
namespace {

Status check_device(const config::Settings& settings) {
  if (settings.device_type() == "host") return {};
  return fail(
      Code::kUnimplemented,
      "device.type: this build has no {} device; use device.type: host, or a build with STRATA_CUDA=ON",
      settings.device_type().value);
}

struct StatusSources {
  std::string model;
  const MemoryPlan* plan;
  const Device* device;
  const ResidentTable* residents;
  const WindowLoop* loop;
  std::function<std::vector<std::string>()> missing;
};

void fill_status(const StatusSources& from, v1::GetStatusResponse& status) {
  auto fact = [&](const char* name, std::string value) {
    v1::Fact& added = *status.add_facts();
    added.set_name(name);
    added.set_value(std::move(value));
  };
  const LoopCounters& counters = from.loop->counters();
  fact("model", from.model);
  fact("device", std::string(from.device->type()));
  fact("experts resident", fmt::format("{} of {} slots, {} experts", from.residents->slots_used(),
                                       from.plan->slots, from.plan->experts_total));
  fact("sequences running",
       fmt::format("{} of {}", counters.sequences_running.load(std::memory_order_relaxed),
                   from.plan->sequences));
  fact("windows", fmt::format("{}", counters.windows.load(std::memory_order_relaxed)));
  fact("kv", fmt::format("{} MiB", from.plan->item("kv").bytes >> 20));
  std::vector<std::string> missing = from.missing();
  for (const std::string& name : missing) status.add_degraded(name);
  status.set_state(missing.empty() ? v1::PROCESS_STATE_READY : v1::PROCESS_STATE_DEGRADED);
  if (!missing.empty()) status.set_detail(fmt::format("waiting for {}", fmt::join(missing, ", ")));
  status.set_progress(1.0);
}

Status run(const rpc::ProcessContext& context) {
  auto start = std::chrono::steady_clock::now();
  const config::Settings& settings = *context.settings;
  TRY_OK(check_device(settings));
  TRY(auto file, gguf::GgufFile::open(settings.model_path().string()));
  TRY(auto weights, model::load_model(file));
  const model::ModelConfig& config = weights.config;
  TRY(uint32_t context_tokens, planned_context(config, settings));
  TRY(auto plan, make_plan(config, settings, context_tokens,
                           plan_input(weights, context_tokens, sys::available_memory_bytes())));
  obs::info("plan", "{}", plan.text());
  if (config.draft_layers > 0) {
    obs::warn("model", "the file has {} draft layers; drafts are not used", config.draft_layers);
  }

  quant::Numerics numerics =
      settings.numerics() == "exact" ? quant::Numerics::kExact : quant::Numerics::kReproducible;
  std::string fingerprint = file.fingerprint();
  std::string model_name = settings.model_name().empty() ? config.name : settings.model_name();

  ExpertWorkers workers({.run_id = context.run_id,
                         .geometry = plan.board,
                         .lost_after_ms = settings.cpu_experts_lost_after_ms(),
                         .expected = settings.cpu_experts_workers()});
  TRY(auto device, HostDevice::create({.weights = &weights,
                                       .plan = plan,
                                       .numerics = numerics,
                                       .threads = host_threads(settings.device_threads()),
                                       .run_id = context.run_id,
                                       .workers = &workers}));
  WindowLoop loop({.device = device.get(),
                   .context_tokens = plan.context_tokens,
                   .prefill_chunk_tokens = plan.prefill_chunk_tokens});

  auto residency = std::make_unique<ResidencyService>(
      ResidencyServiceOptions{.loop = &loop, .device = device.get(), .model_fingerprint = fingerprint});
  auto missing = [&workers, cache_attached = residency->attached()] {
    std::vector<std::string> names = workers.missing();
    if (!cache_attached()) names.emplace_back("cache-manager");
    return names;
  };
  Watchdog watchdog({.trace = &loop.trace(),
                     .budget = std::chrono::milliseconds(settings.engine_window_budget_ms()),
                     .parties =
                         [&] {
                           std::vector<std::string> names = missing();
                           return fmt::format(
                               "{}; not attached: {}", device->activity(),
                               names.empty() ? "nobody" : fmt::format("{}", fmt::join(names, ", ")));
                         },
                     .on_stuck = {}});

  EngineServiceOptions engine{.loop = &loop,
                              .limits = {.vocab = config.vocab, .context_tokens = plan.context_tokens},
                              .facts = {},
                              .fill = {}};
  engine.facts.set_model_name(model_name);
  engine.facts.set_model_fingerprint(fingerprint);
  engine.facts.set_numerics(settings.numerics().value);
  engine.facts.set_device_type(std::string(device->type()));
  engine.facts.set_context_tokens(plan.context_tokens);
  engine.facts.set_sequences_max(plan.sequences);
  engine.facts.set_prefill_chunk_tokens(plan.prefill_chunk_tokens);
  engine.facts.set_expert_slots(plan.slots);
  engine.facts.set_experts_total(plan.experts_total);
  engine.fill = [&](v1::GetEngineResponse& response) {
    response.set_expert_slots_used(device->residents().slots_used());
    for (const std::string& name : missing()) response.add_degraded(name);
  };

  auto metrics = std::make_shared<obs::Metrics>(obs::Labels{{"model", model_name}, {"worker", "gpu0"}});
  StatusSources sources{.model = model_name,
                        .plan = &plan,
                        .device = device.get(),
                        .residents = &device->residents(),
                        .loop = &loop,
                        .missing = missing};
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<EngineService>(std::move(engine)));
  services.push_back(std::move(residency));
  services.push_back(std::make_unique<ExpertHubService>(workers, fingerprint));
  TRY(auto server,
      rpc::Server::start({.run_dir = context.run_dir,
                          .name = context.name,
                          .status = [&](v1::GetStatusResponse& status) { fill_status(sources, status); },
                          .metrics = metrics,
                          .config_hash = context.config_hash,
                          .metrics_listen = rpc::metrics_address(settings.metrics_listen(), context.name)},
                         std::move(services)));
  double load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  actor::ActorSystem actors(1);
  auto probe = std::make_shared<EngineProbe>(actors.make_executor(), *metrics, plan, load_seconds,
                                             EngineProbeSources{.loop = &loop.counters(),
                                                                .dispatch = &device->dispatch_counters(),
                                                                .residents = &device->residents()});
  actor::tell(probe, EngineProbe::Update{});
  server->set_serving(true);
  obs::info("main", "{} on the {} device, ready after {:.2f} s", model_name, device->type(), load_seconds);
  rpc::wait_for_stop_signal();
  server->set_serving(false);
  server->stop();
  loop.stop();
  actors.stop();
  return {};
}

}  // namespace
}  // namespace strata::gpu_worker

int main(int argc, char** argv) {
  auto context = strata::rpc::start_process(argc, argv, "gpu-worker",
                                            "Computes the model: prefill, decode, sampling, residency.");
  if (!context) return strata::rpc::startup_failed(context.error());
  strata::Status status = strata::gpu_worker::run(*context);
  return status.ok() ? 0 : strata::rpc::startup_failed(status);
}
