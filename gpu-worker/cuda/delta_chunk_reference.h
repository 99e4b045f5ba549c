#pragma once
// The chunked form of the delta-net for one chunk of one head, in double precision and as the specification
// writes it (model-qwen4exp section 6, "Chunked form"), and the recurrence beside it.

#include <cmath>
#include <cstdint>
#include <vector>

#include "services/quant/test_inputs.h"

namespace strata::gpu_worker::cuda::tests {

struct DeltaChunk {
  uint32_t dim = 0, rows = 0;
  std::vector<double> q, k, v;          // (rows, dim)
  std::vector<double> log_decay, beta;  // (rows)
  std::vector<double> state;            // (dim, dim), [key][value]
};
struct DeltaChunkResult {
  std::vector<double> out;    // (rows, dim)
  std::vector<double> state;  // (dim, dim)
};

inline DeltaChunk made_up_chunk(uint32_t dim, uint32_t rows, uint32_t seed) {
  quant::tests::Generator random(seed);
  const auto numbers = [&](std::size_t count) {
    std::vector<double> values(count);
    for (double& value : values) value = double{random.uniform()};
    return values;
  };
  const std::size_t all = std::size_t{rows} * dim;
  DeltaChunk chunk{.dim = dim,
                   .rows = rows,
                   .q = numbers(all),
                   .k = numbers(all),
                   .v = numbers(all),
                   .log_decay = numbers(rows),
                   .beta = numbers(rows),
                   .state = numbers(std::size_t{dim} * dim)};
  for (double& g : chunk.log_decay) g = -std::abs(g);
  for (double& beta : chunk.beta) beta = std::abs(beta);
  for (uint32_t row = 0; row < rows; ++row) {  // keys of length 1
    double squares = 0.0;
    for (uint32_t i = 0; i < dim; ++i) squares += chunk.k[row * dim + i] * chunk.k[row * dim + i];
    for (uint32_t i = 0; i < dim; ++i) chunk.k[row * dim + i] /= std::sqrt(squares);
  }
  return chunk;
}

inline DeltaChunkResult recurrent_reference(const DeltaChunk& c) {
  DeltaChunkResult result{.out = std::vector<double>(c.q.size()), .state = c.state};
  for (uint32_t row = 0; row < c.rows; ++row) {
    const std::size_t at = std::size_t{row} * c.dim;
    for (double& s : result.state) s *= std::exp(c.log_decay[row]);
    for (uint32_t value = 0; value < c.dim; ++value) {
      double m = 0.0, o = 0.0;
      for (uint32_t key = 0; key < c.dim; ++key) m += result.state[key * c.dim + value] * c.k[at + key];
      const double delta = c.beta[row] * (c.v[at + value] - m);
      for (uint32_t key = 0; key < c.dim; ++key) {
        double& s = result.state[key * c.dim + value];
        s += c.k[at + key] * delta;
        o += s * c.q[at + key];
      }
      result.out[at + value] = o;
    }
  }
  return result;
}

inline DeltaChunkResult chunked_reference(const DeltaChunk& c) {
  const uint32_t rows = c.rows, dim = c.dim;
  const auto dot = [&](const std::vector<double>& a, uint32_t i, uint32_t j) {
    double sum = 0.0;
    for (uint32_t d = 0; d < dim; ++d) sum += a[i * dim + d] * c.k[j * dim + d];
    return sum;
  };
  std::vector<double> grown(rows);  // G
  for (uint32_t i = 0; i < rows; ++i) grown[i] = c.log_decay[i] + (i > 0 ? grown[i - 1] : 0.0);
  // (I + A) U = diag(beta) V and (I + A) W = diag(beta exp(G)) K, row by row.
  std::vector<double> u(c.v.size()), w(c.v.size());
  for (uint32_t i = 0; i < rows; ++i) {
    for (uint32_t d = 0; d < dim; ++d) {
      u[i * dim + d] = c.beta[i] * c.v[i * dim + d];
      w[i * dim + d] = c.beta[i] * std::exp(grown[i]) * c.k[i * dim + d];
    }
    for (uint32_t j = 0; j < i; ++j) {
      const double a = c.beta[i] * dot(c.k, i, j) * std::exp(grown[i] - grown[j]);
      for (uint32_t d = 0; d < dim; ++d) {
        u[i * dim + d] -= a * u[j * dim + d];
        w[i * dim + d] -= a * w[j * dim + d];
      }
    }
  }
  DeltaChunkResult result{.out = std::vector<double>(c.q.size()), .state = c.state};
  for (double& s : result.state) s *= std::exp(grown[rows - 1]);
  for (uint32_t value = 0; value < dim; ++value) {
    const auto column = [&](const std::vector<double>& left, uint32_t row) {
      double sum = 0.0;
      for (uint32_t key = 0; key < dim; ++key) sum += left[row * dim + key] * c.state[key * dim + value];
      return sum;
    };
    std::vector<double> fresh(rows);  // V'
    for (uint32_t i = 0; i < rows; ++i) fresh[i] = u[i * dim + value] - column(w, i);
    for (uint32_t i = 0; i < rows; ++i) {
      double o = std::exp(grown[i]) * column(c.q, i);
      for (uint32_t j = 0; j <= i; ++j) o += dot(c.q, i, j) * std::exp(grown[i] - grown[j]) * fresh[j];
      result.out[i * dim + value] = o;
      for (uint32_t key = 0; key < dim; ++key) {
        result.state[key * dim + value] +=
            c.k[i * dim + key] * std::exp(grown[rows - 1] - grown[i]) * fresh[i];
      }
    }
  }
  return result;
}

}  // namespace strata::gpu_worker::cuda::tests
