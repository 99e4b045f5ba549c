// Few rows of activations and weights of types that are dequantized in blocks: every weight row is read once,
// by one warp. What takes time is waiting for memory, so all threads of the block first put whole stretches
// of weights and activations on their way into shared memory: with one row of activations of up to 10240
// values, everything that the block will need.

#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/weight_stages.cuh"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// Block (row groups of all jobs, groups of kTokens rows of x).
template <int kTokens>
__global__ void __launch_bounds__(kThreads) few_kernel(FloatJobs jobs, FloatRows x, uint32_t token_count) {
  const FloatJob& job = jobs.of_block(blockIdx.x);
  const WeightStages block(job, blockIdx.x, dynamic_shared<std::byte>());
  const uint32_t chunk_values = job.shape.chunk;
  const uint32_t token = blockIdx.y * kTokens, tokens = min(uint32_t{kTokens}, token_count - token);
  const uint32_t chunks = block.chunks();
  // Always commits, so that the count of commits tells which chunk has arrived.
  const auto fetch = [&](uint32_t chunk) {
    if (chunk < chunks) {
      auto* activations = reinterpret_cast<float*>(block.stage(chunk));
      for (uint32_t t = 0; t < tokens; ++t) {
        stage_floats(activations + t * chunk_values, x.data + (token + t) * x.stride + block.first(chunk),
                     block.count(chunk), threadIdx.x, kThreads);
      }
      block.fetch_weights(chunk);
    }
    copies_commit();
  };

  for (uint32_t i = 0; i < kStages; ++i) fetch(i);
  const bool has_row = warp_index() < block.rows;
  float sums[kTokens][2] = {};
  for (uint32_t i = 0; i < chunks; ++i) {
    copies_wait<kStages - 1>();
    __syncthreads();
    if (has_row) block.accumulate(i, reinterpret_cast<const float*>(block.stage(i)), chunk_values, sums);
    if (i + kStages < chunks) __syncthreads();  // its place is filled again
    fetch(i + kStages);
  }
  if (!has_row) return;  // the whole warp
  const float total = total_of_lane_pairs<kTokens>(sums);
  constexpr uint32_t kShare = kWarp / kTokens;  // threads that have the same total
  const uint32_t t = lane_index() / kShare;
  if (lane_index() % kShare == 0 && t < tokens)
    store_product(jobs, job, token + t, block.row + warp_index(), total);
}

template <int kTokens>
void launch_few(FloatJobs& jobs, FloatRows x, uint32_t rows, cudaStream_t stream) {
  const uint32_t groups = (rows + kTokens - 1) / kTokens;
  uint64_t weight_rows = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) weight_rows += jobs.jobs[i].product.matrix.rows;
  const uint32_t wanted = rows_per_block(weight_rows * groups, kThreads / kWarp);
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    FloatJob& job = jobs.jobs[i];
    CHECK(choose_shape(job, wanted, kTokens, shared_bytes_max()), "a row does not fit");
    bytes = std::max(bytes, shared_bytes(job.shape));
  }
  launch(few_kernel<kTokens>,
         {.grid = dim3(assign_blocks(jobs), groups), .block = kThreads, .shared_bytes = bytes}, stream, jobs,
         x, rows);
}

}  // namespace

void multiply_f32_few(FloatJobs jobs, FloatRows x, uint32_t rows, cudaStream_t stream) {
  if (rows == 1) return launch_few<1>(jobs, x, rows, stream);
  if (rows == 2) return launch_few<2>(jobs, x, rows, stream);
  if (rows <= 4) return launch_few<4>(jobs, x, rows, stream);
  launch_few<8>(jobs, x, rows, stream);
}

}  // namespace strata::gpu_worker::cuda
