#pragma once
// Which experts rows were routed to, on the way from the window loop to whoever records: a ring of fixed size
// between two threads. The loop adds and never waits; rows that find no room are dropped and counted.

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace strata::gpu_worker {

struct RoutedRow {
  uint32_t sequence = 0;  // routing_sequence() of its sequence
  uint32_t position = 0;
  int32_t token = 0;
  bool is_prompt = false;
};

struct RoutingShape {
  uint32_t layers = 0;
  uint32_t used = 0;                                // experts per token
  uint32_t picks() const { return layers * used; }  // of a row
  uint64_t row_bytes() const { return picks() * sizeof(uint16_t) + sizeof(RoutedRow); }
};

class RoutingLog {
 public:
  // `rows_there`: called on the event thread after each window that added something.
  RoutingLog(const RoutingShape& shape, uint32_t rows_max, std::function<void()> rows_there);

  // The window loop. routed (layers, rows, used), as the device has it.
  void add(std::span<const RoutedRow> rows, std::span<const uint16_t> routed);
  // The event thread.
  void tell() const { rows_there_(); }

  struct Taken {
    std::vector<RoutedRow> rows;
    std::vector<uint16_t> experts;  // (rows, layers, used)
    uint64_t dropped = 0;           // rows, since the last call
  };
  // One thread at a time, any: the oldest rows, at most `rows_max`.
  Taken take(uint32_t rows_max);

  const RoutingShape& shape() const { return shape_; }

 private:
  const RoutingShape shape_;
  const uint32_t rows_max_;
  const std::function<void()> rows_there_;
  std::vector<RoutedRow> rows_;    // (rows_max)
  std::vector<uint16_t> experts_;  // (rows_max, layers, used)
  // Rows added and taken ever; row n lies at n % rows_max. Each is written by its own side only. Release and
  // acquire: whoever sees the number sees the rows below it (added), or that they were read (taken).
  std::atomic<uint64_t> added_{0}, taken_{0};
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace strata::gpu_worker
