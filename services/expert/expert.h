#pragma once
// One expert: y = down( silu(gate x) * (up x) ), for 1..n tokens, by the canonical expression of
// docs/numerics.md. Linked by the expert worker (misses), by the host device (hits) and by the gpu-worker's
// lost-worker fallback, so that all of them give the same bits. Router weights are not applied here: `parts`
// are summed in router order by the caller (combine_parts).

#include <cstdint>
#include <span>
#include <vector>

#include "services/quant/quant.h"

namespace strata::expert {

struct ExpertWeights {
  quant::Matrix gate;  // (width, hidden)
  quant::Matrix up;    // (width, hidden)
  quant::Matrix down;  // (hidden, width)
};

// True when the 8-bit form of the input is all that this expert needs (both gate and up are quantized and
// numerics allow it); otherwise the float32 input must be given.
bool takes_q8_input(const ExpertWeights& expert, quant::Numerics numerics);

// One expert with the tokens that it is computed for: y[i][0..hidden) = expert(x row tokens[i]).
// x must hold what takes_q8_input() says (Activations::ensure_q8 done). Everything is borrowed.
struct ExpertTask {
  ExpertWeights weights;
  const quant::Activations* x = nullptr;
  std::span<const uint32_t> tokens;
  std::span<float* const> y;  // as many as tokens
  quant::Numerics numerics = quant::Numerics::kReproducible;

  uint32_t width() const { return weights.gate.rows; }
  uint32_t hidden() const { return weights.down.rows; }
};

// Between the two phases of an expert: h = silu(gate x) * (up x), one row of `width` values per token of the
// task.
struct Intermediate {
  float* rows = nullptr;   // (tokens, width)
  std::size_t stride = 0;  // floats between rows
};

// Working memory of one thread, grown on first use and reused, so that the hot path allocates nothing.
class ExpertScratch {
 public:
  // Makes room for `tokens` tokens of experts up to this width.
  void reserve(uint32_t tokens, uint32_t width);
  static uint64_t bytes_needed(uint32_t tokens, uint32_t width);  // what reserve() takes

 private:
  friend class ExpertPhases;
  std::vector<float> gate_, up_;
  std::vector<std::byte> intermediate_q8_;
};

// The two phases of an expert by ranges of rows, so that several threads can share one. Every value depends
// on its weight row and its token alone: however the rows are cut and whoever computes them, the bits are the
// same. `next` is what the thread will read after these rows (a hint, see quant::multiply).
class ExpertPhases {
 public:
  // Tokens that go through a product together: the weights of a range are read once per group.
  static constexpr uint32_t kGroupTokens = 64;

  explicit ExpertPhases(const ExpertTask& task);  // kept by reference
  explicit ExpertPhases(const ExpertTask&&) = delete;

  // Phase 1: columns [begin, end) of h, for all tokens.
  void intermediate(uint32_t begin, uint32_t end, const Intermediate& h, ExpertScratch& scratch,
                    std::span<const std::byte> next = {}) const;
  // What phase 2 reads: h in the form that the down projection takes. Made by each thread for itself, which
  // is cheaper than waiting for somebody else's. All columns of h must be there. Lies in the scratch (or in
  // h), valid until its next use.
  quant::Activations output_input(const Intermediate& h, ExpertScratch& scratch) const;
  // Phase 2: values [begin, end) of y, for all tokens.
  void output(uint32_t begin, uint32_t end, const quant::Activations& input,
              std::span<const std::byte> next = {}) const;

  // Both phases on this thread.
  void whole(ExpertScratch& scratch, std::span<const std::byte> next = {}) const;

  // The weights that a range of phase 1 reads first, and those of phase 2.
  std::span<const std::byte> gate_rows(uint32_t begin, uint32_t end) const;
  std::span<const std::byte> up_rows(uint32_t begin, uint32_t end) const;
  std::span<const std::byte> down_rows(uint32_t begin, uint32_t end) const;

 private:
  const ExpertTask& task_;
};

// One expert on the calling thread (ExpertPhases::whole).
void compute_expert(const ExpertWeights& expert, const quant::Activations& x,
                    std::span<const uint32_t> tokens, std::span<float* const> y, quant::Numerics numerics,
                    ExpertScratch& scratch);

// y[0..hidden) = sum over k, in router order, of weights[k] * parts[k][...], by fma with one accumulator
// starting at 0.
void combine_parts(std::span<const float* const> parts, std::span<const float> weights, uint32_t hidden,
                   float* y);

}  // namespace strata::expert
