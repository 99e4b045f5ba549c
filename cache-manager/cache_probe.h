#pragma once
// The cache manager's metrics (spec: metrics).

#include <cstdint>
#include <string_view>

#include "services/obs/metrics.h"

namespace strata::cache_manager {

enum class DropReason {
  kRefused,   // the gpu-worker said no: the table had changed
  kBusy,      // its inbox was full
  kDetached,  // it went away in the middle
};

class CacheProbe {
 public:
  explicit CacheProbe(obs::Metrics& metrics);

  void landed(uint64_t experts, uint64_t bytes);
  void waited(double seconds);  // for window boundaries
  void dropped(DropReason reason, uint64_t experts);
  void attached(bool is);
  void in_flight(uint64_t experts);

 private:
  prometheus::Counter& exchanges_;
  prometheus::Counter& bytes_;
  prometheus::Counter& wait_seconds_;
  prometheus::Counter& refused_;
  prometheus::Counter& busy_;
  prometheus::Counter& detached_;
  prometheus::Gauge& attached_;
  prometheus::Gauge& in_flight_;
};

}  // namespace strata::cache_manager
