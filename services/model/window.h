#pragma once
// What the parts of the forward pass share: the rows of the present window by sequence, and matrix products
// over them.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "services/model/model_weights.h"
#include "services/model/parallel.h"
#include "services/model/sequence_state.h"

namespace strata::model {

// Consecutive rows of one sequence; position is that of the first.
struct Segment {
  SequenceState* sequence = nullptr;
  uint32_t row_begin = 0;
  uint32_t row_count = 0;
  uint32_t position = 0;
};

struct RowPlace {
  uint32_t segment = 0;
  uint32_t position = 0;
};

// The state behind a row is wanted, too.
struct Capture {
  uint32_t row = 0;
  const FixedState* to = nullptr;
};

struct Window {
  std::vector<Segment> segments;
  std::vector<Capture> captures;  // rising rows
  std::vector<RowPlace> places;   // (rows)
  std::vector<int32_t> tokens;    // (rows)
  std::vector<float> turns;       // (rows, 2, pairs): Rope::turn_at of each row's position

  uint32_t rows() const { return static_cast<uint32_t>(places.size()); }
};

// body(stretch, captured): the segment cut behind every row whose state is wanted; `captured` says where it
// is to go, null behind a last stretch that nobody wants. Who moves a state on stretch by stretch, and copies
// in between, leaves what as many windows would have left.
template <class Body>
void for_each_stretch(const Window& window, const Segment& segment, const Body& body) {
  const uint32_t end = segment.row_begin + segment.row_count;
  Segment stretch = segment;
  for (const Capture& capture : window.captures) {
    if (capture.row < segment.row_begin || capture.row >= end) continue;
    stretch.row_count = capture.row + 1 - stretch.row_begin;
    body(stretch, capture.to);
    stretch.position += stretch.row_count;
    stretch.row_begin += stretch.row_count;
  }
  stretch.row_count = end - stretch.row_begin;
  if (stretch.row_count > 0) body(stretch, static_cast<const FixedState*>(nullptr));
}

// The input of tap i (of `taps`, `dilation` positions apart, the last one at the row itself) for row `row` of
// a segment: from the window, or from the history kept in the state, (history rows, width), oldest first.
struct HistoryTaps {
  const float* window = nullptr;   // (rows, width) of the whole window
  const float* history = nullptr;  // of the segment's sequence
  std::size_t width = 0;
  uint32_t history_rows = 0;

  const float* row(const Segment& segment, uint32_t row, uint32_t back) const {
    const uint32_t index = row - segment.row_begin;
    if (back <= index) return window + std::size_t{row - back} * width;
    return history + std::size_t{history_rows + index - back} * width;
  }
};

// Drops the oldest rows of a history and appends the segment's rows of the window.
void append_history(const Segment& segment, const float* window, std::size_t width, uint32_t history_rows,
                    float* history);

// out[row][0..matrix.rows) = matrix . input row, rows `out_stride` floats apart.
struct Product {
  const Matrix* matrix = nullptr;
  quant::Activations* input = nullptr;
  float* out = nullptr;
  std::size_t out_stride = 0;
  quant::Numerics numerics = quant::Numerics::kReproducible;
};

// Computes several products of the window as one job, split over the rows of all their matrices.
void multiply_all(Parallel& parallel, std::initializer_list<Product> products);

// body(row, begin, end) over pieces of the columns [0, columns) of every row.
template <class Body>
void for_each_row_piece(Parallel& parallel, uint32_t rows, uint32_t columns, uint32_t columns_per_piece,
                        const Body& body) {
  const uint32_t pieces = (columns + columns_per_piece - 1) / columns_per_piece;
  parallel.run(rows * pieces, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const uint32_t first = i % pieces * columns_per_piece;
      body(i / pieces, first, first + columns_per_piece < columns ? first + columns_per_piece : columns);
    }
  });
}

}  // namespace strata::model
