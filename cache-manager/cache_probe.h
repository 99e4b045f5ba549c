#pragma once
// The cache manager's metrics (spec: metrics). Those with the label `layer` have one series per layer of the
// model, made at the start.

#include <cstdint>
#include <span>
#include <vector>

#include "services/obs/metrics.h"

namespace strata::cache_manager {

enum class DropReason {
  kRefused,    // the gpu-worker said no: the table had changed
  kBusy,       // its inbox was full
  kDetached,   // it went away in the middle
  kAbandoned,  // not wanted any more: what is demanded had changed, or the cache manager stops
};

class CacheProbe {
 public:
  CacheProbe(obs::Metrics& metrics, uint32_t layers);

  void landed(uint32_t layer, uint64_t bytes);  // one expert
  void waited(double seconds);                  // for a window boundary
  void dropped(DropReason reason, uint64_t experts);
  void attached(bool is);
  void in_flight(uint64_t experts);
  // (layers); no quotas: there is no policy now, they stay as they were.
  void slots(std::span<const uint32_t> quotas, std::span<const uint32_t> resident);

 private:
  struct Layer {
    prometheus::Counter& exchanges;
    prometheus::Gauge& quota;
    prometheus::Gauge& resident;
  };
  prometheus::Counter& exchanges_;
  prometheus::Counter& bytes_;
  prometheus::Counter& wait_seconds_;
  std::vector<prometheus::Counter*> dropped_;  // by DropReason
  prometheus::Gauge& attached_;
  prometheus::Gauge& in_flight_;
  std::vector<Layer> layers_;
};

}  // namespace strata::cache_manager
