// strata-cpu-expert-worker: computes the experts that are not resident, straight from the mapped model file.

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "cpu-expert-worker/board_client.h"
#include "cpu-expert-worker/board_server.h"
#include "cpu-expert-worker/pool_probe.h"
#include "cpu-expert-worker/read_ahead.h"
#include "services/actor/actor_system.h"
#include "services/expert/thread_plan.h"
#include "services/gguf/gguf_file.h"
#include "services/obs/log.h"
#include "services/quant/kernels.h"
#include "services/rpc/process_main.h"
#include "services/rpc/server.h"
#include "services/shm/wake_cost.h"
#include "services/sys/cpus.h"
#include "services/sys/topology.h"

namespace strata::cpu_expert_worker {
namespace {

std::string waiting_text(const expert::ThreadPlan& plan, const shm::WakeCost& wake_cost) {
  const std::string sleep = plan.wait.park_after_us == 0
                                ? "never asleep"
                                : fmt::format("asleep after {} us of quiet", plan.wait.park_after_us);
  return fmt::format("{}; a ring reaches a waiting thread in {:.1f} us, a sleeping one in {:.1f} us", sleep,
                     wake_cost.awake_us, wake_cost.asleep_us);
}

void fill_status(const expert::ThreadPlan& plan, const shm::WakeCost& wake_cost, const BoardClient& client,
                 const ReadAhead& read_ahead, v1::GetStatusResponse& status) {
  const auto fact = [&](const char* name, std::string value) {
    v1::Fact& added = *status.add_facts();
    added.set_name(name);
    added.set_value(std::move(value));
  };
  fact("board", client.attached() ? "attached" : "not attached");
  fact("threads", plan.text());
  fact("waiting", waiting_text(plan, wake_cost));
  fact("experts mapped", fmt::format("{} MiB, {} MiB read ahead", read_ahead.total_bytes() >> 20,
                                     read_ahead.read_bytes() >> 20));
  status.set_state(v1::PROCESS_STATE_READY);
  status.set_detail(client.detail());
  const double total = static_cast<double>(std::max<uint64_t>(1, read_ahead.total_bytes()));
  status.set_progress(read_ahead.finished() ? 1.0 : static_cast<double>(read_ahead.read_bytes()) / total);
}

Status run(const rpc::ProcessContext& context) {
  const config::Settings& settings = *context.settings;
  TRY(auto file, gguf::GgufFile::open(settings.model_path().string()));
  TRY(auto experts, model::load_experts(file));
  const sys::Topology topology = sys::machine_topology();
  const uint32_t index = expert::worker_index(context.name);
  expert::ThreadPlan plan = expert::plan_threads(settings, index, topology);
  if (plan.node) {
    // Before any thread starts: they all inherit it.
    const Status preferred = sys::prefer_memory_of_node(*plan.node);
    if (!preferred.ok()) obs::warn("main", "{}", preferred.message());
  }
  const shm::WakeCost wake_cost = shm::measure_wake_cost(plan.cpus);
  // Where cores are short, time awake is not free.
  if (!settings.cpu_experts_park_after_us().number && !plan.wait.yield)
    plan.wait.park_after_us = shm::park_after_us(plan.wait.park_after_us, wake_cost);
  expert::stay_off_expert_cpus(settings);

  const std::string model_name = settings.model_name().empty() ? experts.config.name : settings.model_name();
  const std::string worker = fmt::format("cpu{}", index);
  auto metrics = std::make_shared<obs::Metrics>(obs::Labels{{"model", model_name}, {"worker", worker}});
  BoardServer pool({.layers = experts.layers, .threads = plan.threads, .cpus = plan.cpus, .wait = plan.wait});
  actor::ActorSystem actors(1);
  // Held here: an actor that nobody holds hears nothing.
  const auto probe = std::make_shared<PoolProbe>(actors.make_executor(), *metrics, pool.counters());
  actor::tell(probe, PoolProbe::Update{});

  v1::AttachExpertsRequest request;
  request.set_worker(context.name);
  request.set_pid(static_cast<uint32_t>(getpid()));
  request.set_threads(plan.threads);
  request.set_model_fingerprint(file.fingerprint());
  request.set_board_layout_version(shm::kBoardLayoutVersion);
  BoardClient client(
      {.channel = rpc::connect(context.run_dir, "gpu-worker"), .request = request, .server = &pool});
  // Each worker reads its part of the experts, into its part of the memory.
  const uint32_t workers = std::max(1U, expert::worker_count(settings, topology));
  ReadAhead read_ahead(experts.layers, sys::available_memory_bytes() / workers,
                       {.index = index, .of = workers});

  rpc::ServerOptions options{
      .run_dir = context.run_dir,
      .name = context.name,
      .status =
          [&](v1::GetStatusResponse& status) { fill_status(plan, wake_cost, client, read_ahead, status); },
      .metrics = metrics,
      .config_hash = context.config_hash,
      .metrics_listen = rpc::metrics_address(settings.metrics_listen(), context.name)};
  TRY(auto server, rpc::Server::start(std::move(options), {}));
  server->set_serving(true);
  obs::info("main", "{}: {} MiB of experts mapped, {}; {}; {} kernels", model_name,
            read_ahead.total_bytes() >> 20, plan.text(), waiting_text(plan, wake_cost),
            quant::kernels().name);
  rpc::wait_for_stop_signal();
  server->set_serving(false);
  server->stop();
  actors.stop();
  return {};
}

}  // namespace
}  // namespace strata::cpu_expert_worker

int main(int argc, char** argv) {
  auto context = strata::rpc::start_process(argc, argv, "cpu-expert-worker-0",
                                            "Computes the experts that are not resident.");
  if (!context) return strata::rpc::startup_failed(context.error());
  const strata::Status status = strata::cpu_expert_worker::run(*context);
  return status.ok() ? 0 : strata::rpc::startup_failed(status);
}
