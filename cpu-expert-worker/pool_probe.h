#pragma once
// The metrics of an expert worker's threads (spec: metrics).

#include "services/obs/metrics.h"

namespace strata::cpu_expert_worker {

struct PoolProbe {
  explicit PoolProbe(obs::Metrics& metrics)
      : busy_seconds(metrics.counter(
            "strata_cpu_pool_busy_seconds_total",
            "Time with a request on the board; near 1 per second: the CPU is what decoding waits for.")),
        jobs(metrics.counter("strata_cpu_pool_jobs_total", "Experts computed, each with all of its tokens.")),
        bytes_read(
            metrics.counter("strata_cpu_pool_bytes_read_total",
                            "Expert weights read; compare its rate with the machine's memory bandwidth.")) {}

  prometheus::Counter& busy_seconds;
  prometheus::Counter& jobs;
  prometheus::Counter& bytes_read;
};

}  // namespace strata::cpu_expert_worker
