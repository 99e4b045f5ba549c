#include "gpu-worker/engine_probe.h"

#include <string>
#include <utility>

namespace strata::gpu_worker {

namespace {

constexpr std::chrono::milliseconds kUpdateEvery{100};

prometheus::Histogram& chunk_histogram(obs::Metrics& metrics) {
  return metrics.histogram("strata_prefill_chunk_tokens",
                           "Prompt tokens read in one window; small chunks are slow per token.",
                           std::vector<double>(kChunkBounds.begin(), kChunkBounds.end()));
}

}  // namespace

prometheus::Histogram& restore_seconds(obs::Metrics& metrics) {
  return metrics.latency("strata_conv_restore_seconds",
                         "Time to bring a parked conversation back, by where it lay.", {{"tier", "ram"}});
}

EngineProbe::EngineProbe(std::shared_ptr<actor::Executor> executor, obs::Metrics& metrics,
                         const MemoryPlan& plan, double load_seconds, EngineProbeSources sources)
    : Actor(std::move(executor)),
      sources_(sources),
      chunk_tokens_(chunk_histogram(metrics)),
      chunk_buckets_seen_(kChunkBounds.size() + 1),
      slots_used_(metrics.gauge("strata_expert_slots_used", "Arena slots whose expert is published.")),
      residency_epoch_(
          metrics.gauge("strata_residency_epoch", "Grows when the placement of experts changes.")),
      kept_bytes_(metrics.gauge("strata_conv_bytes", "Bytes of conversations that are kept, by where.",
                                {{"tier", "vram"}})) {
  const LoopCounters& loop = *sources_.loop;
  followers_.follow(
      metrics.counter("strata_decode_windows_total", "Windows that committed generated tokens."),
      loop.decode_windows);
  followers_.follow(metrics.counter("strata_prefill_seconds_total", "Time of windows spent on prompts."),
                    loop.prefill_ns, 1e-9);
  followers_.follow(
      metrics.counter("strata_decode_seconds_total", "Time of windows spent on generated tokens."),
      loop.decode_ns, 1e-9);
  for (std::size_t index = 0; index < kStages; ++index) {
    followers_.follow(metrics.counter("strata_decode_stage_seconds_total", "Where the time of decoding goes.",
                                      {{"stage", std::string(kStageNames[index])}}),
                      loop.stage_ns[index], 1e-9);
  }

  followers_.follow(metrics.counter("strata_constraint_late_total",
                                    "Tokens of constrained answers whose next mask took longer than there is "
                                    "time between two windows; the answer waited, the others did not."),
                    loop.late_masks);

  const std::string uses = "strata_expert_uses_total";
  const std::string uses_help =
      "Routed expert uses by where they were computed; cpu: the expert was not resident.";
  followers_.follow(metrics.counter(uses, uses_help, {{"served_by", "vram"}}), sources_.dispatch->hits);
  followers_.follow(metrics.counter(uses, uses_help, {{"served_by", "cpu"}}), sources_.dispatch->misses);
  followers_.follow(metrics.counter(uses, uses_help, {{"served_by", "pcie_copy"}}),
                    sources_.dispatch->copies);
  metrics.counter(uses, uses_help, {{"served_by", "disk"}});

  follow_layers(metrics);

  metrics.gauge("strata_expert_slots", "Arena slots over all layers.").Set(plan.slots);
  metrics.gauge("strata_expert_cache_bytes", "Size of the arena.")
      .Set(static_cast<double>(plan.item("arena").bytes));
  metrics.gauge("strata_model_load_seconds", "From process start to ready.").Set(load_seconds);
  const std::string host_help = "Host memory planned, by use.";
  const std::string vram_help = "Device memory planned, by use.";
  for (const PlanItem& item : plan.items) {
    const std::string use = plan.on_gpu && item.use == "arena" ? "experts" : item.use;
    metrics
        .gauge(plan.on_gpu ? "strata_vram_bytes" : "strata_host_bytes", plan.on_gpu ? vram_help : host_help,
               {{"use", use}})
        .Set(static_cast<double>(item.bytes));
  }
  for (const char* unused : {"conv", "kv_stream"})
    metrics.gauge("strata_host_bytes", host_help, {{"use", unused}});
}

// Four series per layer, so that a layer that hits less than the others can be seen.
void EngineProbe::follow_layers(obs::Metrics& metrics) {
  for (uint32_t layer = 0; layer < sources_.usage->header().layers; ++layer) {
    const shm::LayerUses& uses = sources_.usage->layer(layer);
    const auto follow = [&](const char* phase, const char* result, const std::atomic<uint64_t>& source) {
      followers_.follow(
          metrics.counter("strata_expert_layer_uses_total",
                          "Routed expert uses by layer; hit: the expert was resident. A layer "
                          "that misses much more than the others has too small a quota.",
                          {{"layer", std::to_string(layer)}, {"phase", phase}, {"result", result}}),
          source);
    };
    follow("decode", "hit", uses.decode_hits);
    follow("decode", "miss", uses.decode_misses);
    follow("prefill", "hit", uses.prefill_hits);
    follow("prefill", "miss", uses.prefill_misses);
  }
}

void EngineProbe::on(Update) {
  followers_.carry();
  carry_chunks();
  carry_states();
  slots_used_.Set(sources_.residents->slots_used());
  residency_epoch_.Set(static_cast<double>(sources_.residents->residency_epoch()));
  std::shared_ptr<EngineProbe> self = std::static_pointer_cast<EngineProbe>(shared_from_this());
  actor::tell_after(self, kUpdateEvery, Update{});
}

void EngineProbe::carry_states() {
  const StateFeedCounts counts = sources_.states->counts();
  const StateLayout& layout = *sources_.state_layout;
  const uint64_t fixed = (uint64_t{counts.live} + counts.checkpoints) * layout.fixed_bytes();
  kept_bytes_.Set(static_cast<double>(fixed + counts.live_pages * layout.page_bytes()));
}

void EngineProbe::carry_chunks() {
  const LoopCounters& loop = *sources_.loop;
  std::vector<double> increments;
  for (std::size_t index = 0; index < loop.chunk_buckets.size(); ++index) {
    uint64_t now = loop.chunk_buckets[index].load(std::memory_order_relaxed);
    increments.push_back(static_cast<double>(now - std::exchange(chunk_buckets_seen_[index], now)));
  }
  uint64_t tokens = loop.chunk_tokens.load(std::memory_order_relaxed);
  chunk_tokens_.ObserveMultiple(increments,
                                static_cast<double>(tokens - std::exchange(chunk_tokens_seen_, tokens)));
}

}  // namespace strata::gpu_worker
