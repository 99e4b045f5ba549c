// strata-gpu-worker: computes the model. Owns the device, the sequences, the arena and its residency; the
// window loop does the work.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu-worker/constraint_maker.h"
#include "gpu-worker/device_factory.h"
#include "gpu-worker/engine_probe.h"
#include "gpu-worker/engine_service.h"
#include "gpu-worker/expert_hub_service.h"
#include "gpu-worker/expert_workers.h"
#include "gpu-worker/parking/snapshots_client.h"
#include "gpu-worker/parking/state_identity.h"
#include "gpu-worker/parking/states_service.h"
#include "gpu-worker/plan.h"
#include "gpu-worker/plan_table.h"
#include "gpu-worker/residency_service.h"
#include "gpu-worker/routing_service.h"
#include "gpu-worker/watchdog.h"
#include "gpu-worker/window_loop.h"
#include "services/actor/actor_system.h"
#include "services/expert/thread_plan.h"
#include "services/gguf/gguf_file.h"
#include "services/model/synthetic_routing.h"
#include "services/obs/log.h"
#include "services/quant/kernels.h"
#include "services/rpc/process_main.h"
#include "services/rpc/server.h"
#include "services/shm/segment.h"
#include "services/synthetic/model_plan.h"
#include "services/sys/cpus.h"
#include "services/sys/topology.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::gpu_worker {
namespace {

// What is parked when the process stops has so long: the supervisor gives it a second in all.
constexpr std::chrono::milliseconds kParkAtStop{400};

// What is known once the file has been read and the memory planned; nothing large has been allocated yet.
struct Loaded {
  model::ModelWeights weights;
  uint32_t context_tokens = 0;
  std::string fingerprint;
  std::string model_name;
  std::string synthetic_routing;  // engine.synthetic_routing
};

Result<Loaded> load(const config::Settings& settings) {
  TRY(auto file, gguf::GgufFile::open(settings.model_path().string()));
  TRY(auto weights, model::load_model(file));
  TRY(uint32_t context_tokens, planned_context(weights.config, settings));
  if (file.find(synthetic::kSyntheticKey) != nullptr)
    obs::warn("model", "the weights are synthetic: answers are meaningless");
  if (weights.config.draft_layers > 0) {
    obs::warn("model", "the file has {} draft layers; drafts are not used", weights.config.draft_layers);
  }
  std::string name = settings.model_name().empty() ? weights.config.name : settings.model_name();
  return Loaded{.weights = std::move(weights),
                .context_tokens = context_tokens,
                .fingerprint = file.fingerprint(),
                .model_name = std::move(name),
                .synthetic_routing = settings.engine_synthetic_routing()};
}

// What grammars are compiled for.
Result<std::shared_ptr<const grammar::Vocabulary>> load_vocabulary(const std::string& path, uint32_t vocab) {
  TRY(const auto file, gguf::GgufFile::open(path));
  TRY(const auto tokenizer, tokenizer::Tokenizer::from_gguf(file));
  if (tokenizer.vocab_size() > vocab) {
    return fail(Code::kFailedPrecondition, "{}: {} tokens, logits for {}", path, tokenizer.vocab_size(),
                vocab);
  }
  return grammar::Vocabulary::from_tokenizer(tokenizer);
}

// Null unless engine.synthetic_routing asks for it.
Result<std::unique_ptr<model::RoutingOverride>> synthetic_routing(const config::Settings& settings,
                                                                  const model::ModelWeights& weights) {
  const std::string text = settings.engine_synthetic_routing();
  if (text.empty()) return nullptr;
  const auto named = [](const Status& status) {
    return fail(status.code(), "engine.synthetic_routing: {}", status.message());
  };
  const auto spec = model::parse_synthetic_routing(text);
  if (!spec) return named(spec.error());
  model::RoutingShape shape{.experts = {}, .used = weights.config.experts_used};
  for (const model::LayerWeights& layer : weights.layers) shape.experts.push_back(layer.moe.experts.count);
  auto routing = model::make_synthetic_routing(*spec, shape);
  if (!routing) return named(routing.error());
  obs::warn("main", "routing is synthetic ({}): answers are meaningless; unset engine.synthetic_routing",
            text);
  return routing;
}

// The peers that should be attached and are not.
using MissingPeers = std::function<std::vector<std::string>()>;

void fill_status(v1::GetStatusResponse& status, const Loaded& loaded, const MemoryPlan& plan, Device& device,
                 const WindowLoop& loop, const MissingPeers& missing_peers) {
  auto fact = [&](const char* name, std::string value) {
    v1::Fact& added = *status.add_facts();
    added.set_name(name);
    added.set_value(std::move(value));
  };
  const LoopCounters& counters = loop.counters();
  fact("model", loaded.model_name);
  fact("device", std::string(device.type()));
  if (!loaded.synthetic_routing.empty())
    fact("routing", fmt::format("SYNTHETIC ({}): answers are meaningless", loaded.synthetic_routing));
  fact("experts resident", fmt::format("{} of {} slots, {} experts", device.residents().slots_used(),
                                       plan.slots, plan.experts_total));
  fact("sequences running",
       fmt::format("{} of {}", counters.sequences_running.load(std::memory_order_relaxed), plan.sequences));
  fact("windows", fmt::format("{}", counters.windows.load(std::memory_order_relaxed)));
  fact("kv", fmt::format("{} MiB", plan.item("kv").bytes >> 20));
  std::vector<std::string> missing = missing_peers();
  for (const std::string& name : missing) status.add_degraded(name);
  status.set_state(missing.empty() ? v1::PROCESS_STATE_READY : v1::PROCESS_STATE_DEGRADED);
  if (!missing.empty()) status.set_detail(fmt::format("waiting for {}", fmt::join(missing, ", ")));
  status.set_progress(1.0);
}

void add_conversations(v1::GetStatusResponse& status, const StateFeedCounts& kept,
                       const TransferCounters& transfers, bool parking) {
  v1::Fact& on_device = *status.add_facts();
  on_device.set_name("conversations kept");
  on_device.set_value(fmt::format("{}, {} checkpoints", kept.live, kept.checkpoints));
  v1::Fact& outside = *status.add_facts();
  outside.set_name("parking");
  outside.set_value(fmt::format("{}, {} states stored, {} restored, {} restores failed",
                                parking ? "attached" : "no store", transfers.parked.load(),
                                transfers.restored.load(), transfers.restore_failures.load()));
}

v1::GetEngineResponse engine_facts(const config::Settings& settings, const Loaded& loaded,
                                   const MemoryPlan& plan, const Device& device) {
  v1::GetEngineResponse facts;
  facts.set_model_name(loaded.model_name);
  facts.set_model_fingerprint(loaded.fingerprint);
  facts.set_numerics(settings.numerics().value);
  facts.set_device_type(std::string(device.type()));
  facts.set_context_tokens(plan.context_tokens);
  facts.set_sequences_max(plan.sequences);
  facts.set_prefill_chunk_tokens(plan.prefill_chunk_tokens);
  facts.set_expert_slots(plan.slots);
  facts.set_experts_total(plan.experts_total);
  facts.set_captures_within_windows(device.captures_within_windows());
  return facts;
}

RoutingServiceOptions routing_options(const Loaded& loaded, WindowLoop& loop) {
  RoutingServiceOptions options{
      .loop = &loop,
      .shape = {.layers = loaded.weights.config.layers, .used = loaded.weights.config.experts_used},
      .model_fingerprint = loaded.fingerprint};
  for (const model::LayerWeights& layer : loaded.weights.layers)
    options.experts = std::max(options.experts, layer.moe.experts.count);
  return options;
}

Status run(const rpc::ProcessContext& context) {
  auto start = std::chrono::steady_clock::now();
  const config::Settings& settings = *context.settings;

  // What a predecessor that was killed left behind. Before the plan: its arena counts as memory in use, and a
  // worker that finds too little left because of its own past would never start again.
  if (uint32_t removed = shm::remove_segments_of_dead_owners(context.run_id); removed > 0) {
    obs::info("main", "removed {} shared-memory segments of an earlier gpu-worker", removed);
  }
  TRY(const auto loaded, load(settings));
  const DeviceInputs inputs{
      .settings = &settings, .weights = &loaded.weights, .context_tokens = loaded.context_tokens};
  TRY(const auto factory,
      settings.device_type() == "cuda" ? cuda_device_factory(inputs) : host_device_factory(inputs));
  const MemoryPlan& plan = factory->plan();
  for (const std::string& line : plan_table(plan)) obs::info("plan", "{}", line);

  // Torn down in reverse: services before the loop that they submit to, the loop before its device.
  const sys::Topology topology = sys::machine_topology();
  const expert::WindowLoopPlan window_loop = expert::plan_window_loop(settings, topology);
  ExpertWorkers workers({.run_id = context.run_id,
                         .geometry = plan.board,
                         .lost_after_ms = settings.cpu_experts_lost_after_ms(),
                         .expected = expert::worker_count(settings, topology),
                         .wait = window_loop.wait,
                         .keep_awake = settings.device_type() == "cuda" || !window_loop.wait.yield});
  TRY(const auto routing, synthetic_routing(settings, loaded.weights));
  TRY(const auto device, factory->create({.run_id = context.run_id,
                                          .topology = topology,
                                          .wait = window_loop.wait,
                                          .other_cpus = expert::plan_other_threads(settings, topology),
                                          .workers = &workers,
                                          .routing = routing.get()}));
  // The device's own threads compute for workers that are lost, on their CPUs.
  expert::stay_off_expert_cpus(settings);
  auto metrics =
      std::make_shared<obs::Metrics>(obs::Labels{{"model", loaded.model_name}, {"worker", "gpu0"}});
  const snapshot::StateIdentity identity = state_identity({.model_fingerprint = loaded.fingerprint,
                                                           .numerics = settings.numerics().value,
                                                           .device_type = device->type(),
                                                           .synthetic_routing = loaded.synthetic_routing},
                                                          device->state_layout());
  StateFeed states;
  SnapshotsClient parked(rpc::connect(context.run_dir, "cache-manager"), identity);
  const uint32_t vocab = loaded.weights.config.vocab;
  ConstraintMaker constraints({.vocab = vocab,
                               .load_vocabulary = [path = settings.model_path().string(),
                                                   vocab] { return load_vocabulary(path, vocab); },
                               .cache = {.bytes_max = kGrammarCacheBytes}});
  WindowLoop loop(
      {.device = device.get(),
       .context_tokens = plan.context_tokens,
       .prefill_chunk_tokens = plan.prefill_chunk_tokens,
       .cpu = window_loop.cpu,
       .store = &parked,
       .park_after = std::chrono::milliseconds(settings.conversations_park_after_ms()),
       .park_at_stop = kParkAtStop,
       .finish_constraint =
           [&constraints](std::shared_ptr<Generation> generation, std::function<void()> then) {
             constraints.finish(std::move(generation), std::move(then));
           },
       .on_restored = [&seconds = restore_seconds(*metrics)](double each) { seconds.Observe(each); },
       .on_states = [&states](const std::vector<StateChange>& changes) { states.apply(changes); }});

  auto residency = std::make_unique<ResidencyService>(ResidencyServiceOptions{
      .loop = &loop, .device = device.get(), .model_fingerprint = loaded.fingerprint});
  MissingPeers missing_peers = [&workers, cache_attached = residency->attached()] {
    std::vector<std::string> names = workers.missing();
    if (!cache_attached()) names.emplace_back("cache-manager");
    return names;
  };
  Watchdog watchdog({.trace = &loop.trace(),
                     .budget = std::chrono::milliseconds(settings.engine_window_budget_ms()),
                     .parties =
                         [&] {
                           return fmt::format("{}; not attached: [{}]", device->activity(),
                                              fmt::join(missing_peers(), ", "));
                         },
                     .on_stuck = {}});

  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<EngineService>(
      EngineServiceOptions{.loop = &loop,
                           .constraints = &constraints,
                           .limits = {.vocab = vocab, .context_tokens = plan.context_tokens},
                           .facts = engine_facts(settings, loaded, plan, *device),
                           .fill = [&](v1::GetEngineResponse& response) {
                             response.set_expert_slots_used(device->residents().slots_used());
                             for (const std::string& name : missing_peers()) response.add_degraded(name);
                           }}));
  services.push_back(std::move(residency));
  services.push_back(std::make_unique<ExpertHubService>(workers, loaded.fingerprint));
  services.push_back(std::make_unique<RoutingService>(routing_options(loaded, loop)));
  services.push_back(std::make_unique<StatesService>(states, identity, shm::random_instance_id()));

  TRY(auto server,
      rpc::Server::start({.run_dir = context.run_dir,
                          .name = context.name,
                          .status =
                              [&](v1::GetStatusResponse& status) {
                                fill_status(status, loaded, plan, *device, loop, missing_peers);
                                add_conversations(status, states.counts(), loop.transfers(),
                                                  parked.attachment() != 0);
                              },
                          .metrics = metrics,
                          .config_hash = context.config_hash,
                          .metrics_listen = rpc::metrics_address(settings.metrics_listen(), context.name)},
                         std::move(services)));
  double load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  actor::ActorSystem actors(1);
  auto probe = std::make_shared<EngineProbe>(actors.make_executor(), *metrics, plan, load_seconds,
                                             EngineProbeSources{.loop = &loop.counters(),
                                                                .dispatch = &device->dispatch_counters(),
                                                                .residents = &device->residents(),
                                                                .usage = &device->usage(),
                                                                .states = &states,
                                                                .state_layout = &device->state_layout()});
  actor::tell(probe, EngineProbe::Update{});
  server->set_serving(true);
  obs::info("main", "{} on the {} device with {} kernels, window loop {}, ready after {:.2f} s",
            loaded.model_name, device->type(), quant::kernels().name, window_loop.text(), load_seconds);
  rpc::wait_for_stop_signal();
  server->set_serving(false);
  loop.stop();  // first: open answers then end with UNAVAILABLE, which means "submit again"
  constraints.stop();
  server->stop();
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
