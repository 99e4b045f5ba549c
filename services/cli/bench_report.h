#pragma once
// What `strata bench` found out, as a table for people and JSON for programs. Both say first when weights or
// routing are synthetic.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata::cli {

struct BenchSubject {
  std::string synthetic_weights;  // how the weights were made up; empty: they are a real model's
  std::string synthetic_routing;  // engine.synthetic_routing; empty: the router chooses
  std::string model, device, numerics;
  uint64_t model_bytes = 0;
  uint32_t cpus = 0;
  uint32_t context_tokens = 0, sequences = 0;
  uint32_t expert_slots = 0, experts_total = 0;
  double write_seconds = 0;  // of a synthetic model
  double start_seconds = 0;  // until the cluster was ready
};

struct WarmUp {
  uint64_t tokens = 0;
  double seconds = 0;
  std::optional<double> hit_rate;  // of its last part
  bool settled = false;            // the hit rate had stopped to change
};

struct DecodeResult {
  uint32_t clients = 0;
  bool constrained = false;  // the answers were held to a grammar
  uint64_t tokens = 0;
  double tokens_per_second = 0;  // of all clients together, behind the first token of each
  double first_token_ms = 0;     // mean over the clients
  double pause_ms_median = 0, pause_ms_p99 = 0;
  std::optional<double> hit_rate;
  double windows = 0, window_ms = 0;
  double exchanges = 0;              // experts that landed meanwhile
  double exchange_wait_seconds = 0;  // of all windows together, for exchanges at their boundaries
  std::vector<std::pair<std::string, double>> phase_ms;  // per window, largest first
};

struct PrefillResult {
  uint64_t tokens = 0;
  double tokens_per_second = 0;  // until the first token of the answer
  double first_token_ms = 0;
  std::optional<double> hit_rate;
};

struct BenchReport {
  BenchSubject subject;
  WarmUp warm_up;
  std::vector<DecodeResult> decode;
  std::vector<PrefillResult> prefill;
  std::vector<uint32_t> prefill_left_out;      // longer than the context
  std::map<std::string, double> host_bytes;    // by use
  std::map<std::string, double> device_bytes;  // by use; empty on the host device
};

// One line, e.g. "SYNTHETIC weights (random weights: ...) and routing (mild): speeds only, answers mean
// nothing"; empty: nothing is synthetic.
std::string synthetic_note(const BenchSubject& subject);
std::string bench_text(const BenchReport& report);
std::string bench_json(const BenchReport& report);

}  // namespace strata::cli
