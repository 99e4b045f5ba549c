#pragma once
// The host reference of the whole model: one pass over all layers for a window of rows of one or more
// sequences. It is what the `host` device runs and what every CUDA kernel is judged by. The bits of a row
// depend on the row's sequence and token alone, never on what shares the window (numbers contract).

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "services/base/status.h"
#include "services/model/model_weights.h"
#include "services/model/moe_executor.h"
#include "services/model/parallel.h"
#include "services/model/routing_override.h"
#include "services/model/sequence_state.h"

namespace strata::model {

// One token of a window. Rows of one sequence are consecutive and in order; their positions continue the
// sequence.
struct WindowRow {
  SequenceState* sequence = nullptr;
  int32_t token = 0;
  bool want_logits = false;
  uint32_t routing_sequence = 0;  // a number of the sequence for a RoutingOverride
  // Gets the state behind this row, but for keys, values and block keys; null: nobody wants it.
  const FixedState* capture = nullptr;
};

// What a test or a trace wants to look at, called from the forward pass; null functions are skipped.
struct ForwardObserver {
  // Router choice of one layer: ids (tokens, k) in router order with weights.
  std::function<void(uint32_t layer, uint32_t tokens, const uint16_t* ids, const float* weights)> router;
  // Chosen indexer blocks of one row of an attention layer, ascending.
  std::function<void(uint32_t layer, uint32_t row, std::span<const uint32_t> blocks)> blocks;
  // Streams (tokens, C, H) after a layer.
  std::function<void(uint32_t layer, uint32_t tokens, const float* streams)> streams;
  std::function<void(uint32_t row, std::span<const uint64_t> table_rows)> ngram_rows;
  // What the n-gram layer adds, (tokens, C, H).
  std::function<void(uint32_t tokens, const float* added)> ngram_out;
};

// Seconds spent per phase since the last take_phases(); the names are those of
// strata_decode_stage_seconds_total.
struct PhaseSeconds {
  double mixers = 0, attention = 0, delta_net = 0, ngram = 0, route = 0, experts = 0, head = 0;
};

class Forward {
 public:
  // All references are kept. `window_rows_max` rows at most per run(); buffers are made here, run() allocates
  // nothing of consequence.
  Forward(const ModelWeights& weights, quant::Numerics numerics, uint32_t window_rows_max,
          Parallel& parallel);
  ~Forward();
  // Memory of the buffers, and of what run() takes meanwhile, for sequences of `context_tokens`.
  static uint64_t bytes_needed(const ModelWeights& weights, uint32_t window_rows_max,
                               uint32_t context_tokens);

  // Runs the window and advances every sequence by its rows. logits (rows that want them, V) in row order.
  // A row whose logits are not finite is reported by the index in `bad_row`, if not null (-1: none); the
  // sequence has advanced all the same. `before_pages`, if there is one, is called once, before anything of
  // an attention layer's state is read or written.
  Status run(std::span<const WindowRow> rows, MoeExecutor& experts, std::span<float> logits,
             int32_t* bad_row = nullptr, const std::function<void()>& before_pages = {});

  void observe(ForwardObserver observer);
  // From the next run() on; kept by reference, null: the router chooses.
  void override_routing(RoutingOverride* routing);
  PhaseSeconds take_phases();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::model
