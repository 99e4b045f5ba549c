#include "cache-manager/cache_probe.h"

#include <string>

namespace strata::cache_manager {

CacheProbe::CacheProbe(obs::Metrics& metrics, uint32_t layers)
    : exchanges_(metrics.counter("strata_expert_exchanges_total", "Experts landed in the arena.")),
      bytes_(metrics.counter("strata_expert_exchange_bytes_total", "Bytes of the experts landed.")),
      wait_seconds_(
          metrics.counter("strata_expert_exchange_wait_seconds_total",
                          "Time that exchanges waited for a window boundary, to retire and to land.")),
      attached_(metrics.gauge("strata_cache_attached", "1 while the gpu-worker has granted its arena.")),
      in_flight_(
          metrics.gauge("strata_expert_exchanges_in_flight", "Exchanges between retirement and landing.")) {
  for (const char* reason : {"refused", "busy", "detached", "abandoned"}) {
    dropped_.push_back(&metrics.counter("strata_expert_exchanges_dropped_total",
                                        "Exchanges given up before they landed.", {{"reason", reason}}));
  }
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const obs::Labels labels = {{"layer", std::to_string(layer)}};
    layers_.push_back({
        .exchanges = metrics.counter("strata_expert_layer_exchanges_total",
                                     "Experts landed in the arena, by their layer.", labels),
        .quota = metrics.gauge("strata_expert_layer_slots",
                               "Arena slots that the layer may have; much above what it uses: it is still "
                               "being filled.",
                               labels),
        .resident = metrics.gauge("strata_expert_layer_slots_used", "Resident experts of the layer.", labels),
    });
  }
}

void CacheProbe::landed(uint32_t layer, uint64_t bytes) {
  exchanges_.Increment();
  bytes_.Increment(static_cast<double>(bytes));
  layers_.at(layer).exchanges.Increment();
}

void CacheProbe::waited(double seconds) { wait_seconds_.Increment(seconds); }

void CacheProbe::dropped(DropReason reason, uint64_t experts) {
  dropped_.at(static_cast<std::size_t>(reason))->Increment(static_cast<double>(experts));
}

void CacheProbe::attached(bool is) { attached_.Set(is ? 1 : 0); }
void CacheProbe::in_flight(uint64_t experts) { in_flight_.Set(static_cast<double>(experts)); }

void CacheProbe::slots(std::span<const uint32_t> quotas, std::span<const uint32_t> resident) {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    if (!quotas.empty()) layers_[layer].quota.Set(quotas[layer]);
    layers_[layer].resident.Set(resident.empty() ? 0 : resident[layer]);
  }
}

}  // namespace strata::cache_manager
