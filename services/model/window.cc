#include "services/model/window.h"

#include <algorithm>
#include <cstring>

namespace strata::model {
namespace {

// Multiplications that are worth handing to another thread: about ten microseconds.
constexpr uint64_t kMultipliesPerPiece = 1 << 17;
constexpr uint32_t kRowsPerPieceMin = 8;  // the product kernels take weight rows in groups of eight

}  // namespace

void append_history(const Segment& segment, const float* window, std::size_t width, uint32_t history_rows,
                    float* history) {
  const uint32_t fresh = std::min(segment.row_count, history_rows);
  const uint32_t kept = history_rows - fresh;
  std::memmove(history, history + std::size_t{fresh} * width, std::size_t{kept} * width * sizeof(float));
  const uint32_t first = segment.row_begin + segment.row_count - fresh;
  std::memcpy(history + std::size_t{kept} * width, window + std::size_t{first} * width,
              std::size_t{fresh} * width * sizeof(float));
}

void multiply_all(Parallel& parallel, std::initializer_list<Product> products) {
  uint32_t all_rows = 0;
  uint64_t row_cost = 1;
  for (const Product& product : products) {
    if (quant::needs_q8(product.matrix->type, product.numerics)) product.input->ensure_q8();
    all_rows += product.matrix->rows;
    row_cost = std::max(row_cost, uint64_t{product.matrix->cols} * product.input->tokens());
  }
  const uint64_t rows_per_piece = kMultipliesPerPiece / row_cost / kRowsPerPieceMin * kRowsPerPieceMin;
  const auto grain = static_cast<uint32_t>(std::max<uint64_t>(rows_per_piece, kRowsPerPieceMin));
  parallel.run(all_rows, grain, [&](uint32_t begin, uint32_t end) {
    uint32_t first = 0;  // where this product's rows begin among all
    for (const Product& product : products) {
      const uint32_t last = first + product.matrix->rows;
      const uint32_t from = std::max(begin, first), to = std::min(end, last);
      if (from < to) {
        quant::multiply(*product.matrix, *product.input, from - first, to - first, product.out,
                        product.out_stride, product.numerics);
      }
      first = last;
    }
  });
}

}  // namespace strata::model
