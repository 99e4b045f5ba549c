#include "gpu-worker/cuda/stage_marks.h"

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/launch.h"

namespace strata::gpu_worker::cuda {
namespace {

__global__ void write_time_kernel(uint64_t* at) { *at = device_nanoseconds(); }

}  // namespace

void StageMarks::begin(cudaStream_t stream) {
  count_ = 0;
  stages_.clear();
  if (on()) write_time(stream);
}

void StageMarks::mark(Stage stage, cudaStream_t stream) {
  if (!on()) return;
  stages_.push_back(stage);
  write_time(stream);
}

void StageMarks::write_time(cudaStream_t stream) {
  launch(write_time_kernel, {.grid = 1, .block = 1}, stream, times_ + count_);
  ++count_;
}

StageSeconds StageMarks::seconds(const std::vector<Stage>& stages) const {
  StageSeconds seconds{};
  for (std::size_t i = 0; i < stages.size(); ++i)
    stage(seconds, stages[i]) += static_cast<double>(times_[i + 1] - times_[i]) * 1e-9;
  return seconds;
}

}  // namespace strata::gpu_worker::cuda
