// strata-cpu-expert-worker: computes the experts that are not resident, straight from the mapped model file.

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "cpu-expert-worker/board_client.h"
#include "cpu-expert-worker/board_server.h"
#include "cpu-expert-worker/read_ahead.h"
#include "cpu-expert-worker/thread_plan.h"
#include "services/gguf/gguf_file.h"
#include "services/obs/log.h"
#include "services/rpc/process_main.h"
#include "services/rpc/server.h"
#include "services/sys/cpus.h"

namespace strata::cpu_expert_worker {
namespace {

void fill_status(const ThreadPlan& plan, const BoardClient& client, const ReadAhead& read_ahead,
                 v1::GetStatusResponse& status) {
  const auto fact = [&](const char* name, std::string value) {
    v1::Fact& added = *status.add_facts();
    added.set_name(name);
    added.set_value(std::move(value));
  };
  fact("board", client.attached() ? "attached" : "not attached");
  fact("threads", plan.text());
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
  const ThreadPlan plan =
      plan_threads(settings, worker_index(context.name),
                   {.preferred = sys::cpus_by_preference(), .cores = sys::allowed_core_count()});

  const std::string model_name = settings.model_name().empty() ? experts.config.name : settings.model_name();
  const std::string worker = fmt::format("cpu{}", worker_index(context.name));
  auto metrics = std::make_shared<obs::Metrics>(obs::Labels{{"model", model_name}, {"worker", worker}});
  PoolProbe probe(*metrics);
  BoardServer pool({.layers = experts.layers,
                    .threads = plan.threads,
                    .cpus = plan.cpus,
                    .wait = plan.wait,
                    .probe = &probe});

  v1::AttachExpertsRequest request;
  request.set_worker(context.name);
  request.set_pid(static_cast<uint32_t>(getpid()));
  request.set_threads(plan.threads);
  request.set_model_fingerprint(file.fingerprint());
  request.set_board_layout_version(shm::kBoardLayoutVersion);
  BoardClient client(
      {.channel = rpc::connect(context.run_dir, "gpu-worker"), .request = request, .server = &pool});
  ReadAhead read_ahead(experts.layers, sys::available_memory_bytes());

  rpc::ServerOptions options{
      .run_dir = context.run_dir,
      .name = context.name,
      .status = [&](v1::GetStatusResponse& status) { fill_status(plan, client, read_ahead, status); },
      .metrics = metrics,
      .config_hash = context.config_hash,
      .metrics_listen = rpc::metrics_address(settings.metrics_listen(), context.name)};
  TRY(auto server, rpc::Server::start(std::move(options), {}));
  server->set_serving(true);
  obs::info("main", "{}: {} MiB of experts mapped, {}", model_name, read_ahead.total_bytes() >> 20,
            plan.text());
  rpc::wait_for_stop_signal();
  server->set_serving(false);
  server->stop();
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
