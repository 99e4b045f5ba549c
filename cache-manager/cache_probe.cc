#include "cache-manager/cache_probe.h"

namespace strata::cache_manager {

namespace {

prometheus::Counter& dropped_counter(obs::Metrics& metrics, const char* reason) {
  return metrics.counter("strata_expert_exchanges_dropped_total", "Exchanges given up before they landed.",
                         {{"reason", reason}});
}

}  // namespace

CacheProbe::CacheProbe(obs::Metrics& metrics)
    : exchanges_(metrics.counter("strata_expert_exchanges_total", "Experts landed in the arena.")),
      bytes_(metrics.counter("strata_expert_exchange_bytes_total", "Bytes of the experts landed.")),
      wait_seconds_(
          metrics.counter("strata_expert_exchange_wait_seconds_total",
                          "Time that exchanges waited for a window boundary, to retire and to land.")),
      refused_(dropped_counter(metrics, "refused")),
      busy_(dropped_counter(metrics, "busy")),
      detached_(dropped_counter(metrics, "detached")),
      attached_(metrics.gauge("strata_cache_attached", "1 while the gpu-worker has granted its arena.")),
      in_flight_(
          metrics.gauge("strata_expert_exchanges_in_flight", "Exchanges between retirement and landing.")) {}

void CacheProbe::landed(uint64_t experts, uint64_t bytes) {
  exchanges_.Increment(static_cast<double>(experts));
  bytes_.Increment(static_cast<double>(bytes));
}

void CacheProbe::waited(double seconds) { wait_seconds_.Increment(seconds); }

void CacheProbe::dropped(DropReason reason, uint64_t experts) {
  prometheus::Counter& counter = reason == DropReason::kRefused ? refused_
                                 : reason == DropReason::kBusy  ? busy_
                                                                : detached_;
  counter.Increment(static_cast<double>(experts));
}

void CacheProbe::attached(bool is) { attached_.Set(is ? 1 : 0); }
void CacheProbe::in_flight(uint64_t experts) { in_flight_.Set(static_cast<double>(experts)); }

}  // namespace strata::cache_manager
