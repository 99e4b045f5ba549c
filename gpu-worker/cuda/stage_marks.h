#pragma once
// Where the time of a window goes: a mark between two stages writes the device's clock. Marks are nodes of
// their own, so only some windows have them, and speak for the others.

#include <vector>

#include "gpu-worker/cuda/cuda_words.h"
#include "gpu-worker/loop_counters.h"

namespace strata::gpu_worker::cuda {

class StageMarks {
 public:
  // Off: mark() does nothing. `times` has room for kMarksMax, in page-locked memory.
  explicit StageMarks(uint64_t* times = nullptr) : times_(times) {}

  static constexpr uint32_t marks_max(uint32_t layers) { return 16 * (layers + 1); }
  void begin(cudaStream_t stream);
  // What was given to the stream since the last mark belongs to the stage.
  void mark(Stage stage, cudaStream_t stream);
  // The stages of the marks since begin(). A graph repeats the marks that it was captured with: their stages
  // are kept with it.
  const std::vector<Stage>& stages() const { return stages_; }
  // After the window: the seconds between its marks.
  StageSeconds seconds(const std::vector<Stage>& stages) const;
  bool on() const { return times_ != nullptr; }

 private:
  void write_time(cudaStream_t stream);

  uint64_t* times_;
  uint32_t count_ = 0;
  std::vector<Stage> stages_;
};

}  // namespace strata::gpu_worker::cuda
