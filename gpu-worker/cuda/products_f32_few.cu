// Few rows of activations: every weight row is read once, by one warp, in which thread t has the lanes 2 t
// and 2 t + 1 of its sums. What takes time is waiting for memory, so all threads of the block first put whole
// stretches of weights (as they lie in the file) and activations on their way into shared memory: with one
// row of activations of up to 10240 values, everything that the block will need.

#include <algorithm>

#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_f32_parts.cuh"
#include "gpu-worker/cuda/weight_readers.cuh"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kStages = 4;  // chunks that are under way together
constexpr uint32_t kThreads = 256;
constexpr uint32_t kRowsMax = kThreads / kWarp;  // weight rows of a block
constexpr uint32_t kChunkStep = 256;     // values: whole blocks of every type, whole turns through the lanes
constexpr uint32_t kTargetBlocks = 132;  // about one a multiprocessor, if there are rows enough

struct FewShape {
  uint32_t rows_per_block = 1;
  uint32_t chunk = 0;            // values
  uint32_t weight_bytes = 0;     // of a stage, per weight row
  uint32_t converted_bytes = 0;  // per weight row

  __host__ __device__ uint32_t activation_bytes(uint32_t tokens) const { return tokens * chunk * 4; }
  __host__ __device__ uint32_t stage_bytes(uint32_t tokens) const {
    return activation_bytes(tokens) + rows_per_block * weight_bytes;
  }
};

// One chunk of the block's work: columns [first, first + count).
struct Chunk {
  uint32_t first, count;
};

template <int kTokens>
struct FewBlock {
  const FloatJob& job;
  const FewShape& shape;
  FloatRows x;
  uint32_t token, tokens;  // rows of x
  uint32_t row, rows;      // weight rows
  std::byte* shared;

  __device__ std::byte* stage(uint32_t chunk) const {
    return shared + chunk % kStages * shape.stage_bytes(kTokens);
  }
  __device__ Chunk chunk(uint32_t index) const {
    const uint32_t first = index * shape.chunk;
    return {first, min(shape.chunk, job.product.matrix.cols - first)};
  }
  // Weights are copied from the last multiple of 16 bytes before them.
  __device__ const std::byte* weights(uint32_t r, uint32_t first) const {
    const DeviceMatrix& matrix = job.product.matrix;
    return matrix.data + (row + r) * matrix.row_bytes + job.weight_bytes(first);
  }
  __device__ static uint32_t misalignment(const std::byte* p) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p) & 15);
  }

  // Always commits, so that the count of commits tells which chunk has arrived.
  __device__ void fetch(uint32_t index) const {
    const Chunk c = chunk(index);
    if (c.first < job.product.matrix.cols) {
      std::byte* to = stage(index);
      for (uint32_t t = 0; t < tokens; ++t) {
        stage_floats(reinterpret_cast<float*>(to) + t * shape.chunk,
                     x.data + (token + t) * x.stride + c.first, c.count, threadIdx.x, kThreads);
      }
      to += shape.activation_bytes(kTokens);
      const uint32_t pieces = shape.weight_bytes / 16, bytes = job.weight_bytes(c.count);
      for (uint32_t i = threadIdx.x; i < rows * pieces; i += kThreads) {
        const uint32_t r = i / pieces, at = i % pieces * 16;
        const std::byte* from = weights(r, c.first);
        const uint32_t before = misalignment(from);
        if (at < before + bytes) copy16_async(to + r * shape.weight_bytes + at, from - before + at);
      }
    }
    copies_commit();
  }

  // Adds a chunk to the warp's sums.
  __device__ void accumulate(uint32_t index, float (&sums)[kTokens][2]) const {
    const Chunk c = chunk(index);
    const uint32_t r = warp_index();
    const float* activations = reinterpret_cast<const float*>(stage(index));
    const std::byte* stored = stage(index) + shape.activation_bytes(kTokens) + r * shape.weight_bytes +
                              misalignment(weights(r, c.first));
    const auto* raw = reinterpret_cast<const uint8_t*>(stored);
    switch (job.product.matrix.type) {
      case TensorType::kF32:
        add(FloatReader<F32>{raw}, activations, c.count, sums);
        break;
      case TensorType::kF16:
        add(FloatReader<F16>{raw}, activations, c.count, sums);
        break;
      case TensorType::kBF16:
        add(FloatReader<BF16>{raw}, activations, c.count, sums);
        break;
      case TensorType::kQ8_0:
        add(Q8Reader{raw}, activations, c.count, sums);
        break;
      default:
        add_converted(raw, activations, c.count, sums);
        break;
    }
  }

  template <class Reader>
  __device__ void add(Reader reader, const float* activations, uint32_t count,
                      float (&sums)[kTokens][2]) const {
    uint32_t i = 2 * lane_index();
#pragma unroll 4
    for (; i + 1 < count; i += kSumLanes) {
      const float2 w = reader.pair(i);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float2 v = *reinterpret_cast<const float2*>(activations + t * shape.chunk + i);
        sums[t][0] = fmaf(w.x, v.x, sums[t][0]);
        sums[t][1] = fmaf(w.y, v.y, sums[t][1]);
      }
    }
    if (i < count) {  // an odd count: no partner
      const float w = reader.one(i);
      for (int t = 0; t < kTokens; ++t) sums[t][0] = fmaf(w, activations[t * shape.chunk + i], sums[t][0]);
    }
  }

  // The other types: the warp turns a stretch into floats first, one unit a thread.
  __device__ void add_converted(const uint8_t* raw, const float* activations, uint32_t count,
                                float (&sums)[kTokens][2]) const {
    auto* converted = reinterpret_cast<float*>(shared + kStages * shape.stage_bytes(kTokens) +
                                               warp_index() * shape.converted_bytes);
    for (uint32_t first = 0; first < count; first += kConverted) {
      const uint32_t here = min(kConverted, count - first), unit = lane_index();
      if (unit * kUnitValues < here) {
        dequantize_unit(job.product.matrix.type, raw, first / kUnitValues + unit, kUnitValues,
                        converted + unit * kUnitValues, unit);
      }
      __syncwarp();
      add(SwizzledReader{converted}, activations + first, here, sums);
      __syncwarp();
    }
  }
};

// Block (row groups of all jobs, groups of kTokens rows of x).
template <int kTokens>
__global__ void __launch_bounds__(kThreads)
    few_kernel(FloatJobs jobs, FewShape shape, FloatRows x, uint32_t token_count) {
  const FloatJob& job = jobs.of_block(blockIdx.x);
  const uint32_t token = blockIdx.y * kTokens;
  const uint32_t row = (blockIdx.x - job.first_block) * shape.rows_per_block;
  const FewBlock<kTokens> block = {.job = job,
                                   .shape = shape,
                                   .x = x,
                                   .token = token,
                                   .tokens = min(uint32_t{kTokens}, token_count - token),
                                   .row = row,
                                   .rows = min(shape.rows_per_block, job.product.matrix.rows - row),
                                   .shared = dynamic_shared<std::byte>()};
  for (uint32_t i = 0; i < kStages; ++i) block.fetch(i);
  const uint32_t chunks = (job.product.matrix.cols + shape.chunk - 1) / shape.chunk;
  const bool has_row = warp_index() < block.rows;
  float sums[kTokens][2] = {};
  for (uint32_t i = 0; i < chunks; ++i) {
    copies_wait<kStages - 1>();
    __syncthreads();
    if (has_row) block.accumulate(i, sums);
    if (i + kStages < chunks) __syncthreads();  // its place is filled again
    block.fetch(i + kStages);
  }
  if (!has_row) return;  // the whole warp
  const float total = total_of_lane_pairs<kTokens>(sums);
  constexpr uint32_t kShare = kWarp / kTokens;  // threads that have the same total
  const uint32_t t = lane_index() / kShare;
  if (lane_index() % kShare == 0 && t < block.tokens) {
    store_product(jobs, job, token + t, row + warp_index(), total);
  }
}

FewShape shape_of(const FloatJobs& jobs, uint32_t tokens, uint32_t token_groups) {
  uint32_t rows = 0, values_bytes = 0;
  FewShape shape;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    const DeviceMatrix& matrix = jobs.jobs[i].product.matrix;
    rows += matrix.rows;
    values_bytes = std::max(values_bytes, jobs.jobs[i].weight_bytes(kChunkStep));
    if (!has_direct_reader(matrix.type)) shape.converted_bytes = kConverted * sizeof(float);
  }
  const uint32_t wanted = (rows * token_groups + kTargetBlocks - 1) / kTargetBlocks;
  shape.rows_per_block = std::clamp<uint32_t>(wanted, 1, shape.converted_bytes > 0 ? kRowsMax / 2 : kRowsMax);
  // As few steps of kChunkStep as put everything into kStages chunks, or as many as there is room for.
  const uint32_t cols = jobs.jobs[0].product.matrix.cols;
  uint32_t steps = (cols + kStages * kChunkStep - 1) / (kStages * kChunkStep);
  for (;; --steps) {
    CHECK(steps > 0);
    shape.chunk = steps * kChunkStep;
    shape.weight_bytes = (steps * values_bytes + 15 + 15) / 16 * 16;
    const uint32_t bytes = kStages * shape.stage_bytes(tokens) + shape.rows_per_block * shape.converted_bytes;
    if (bytes <= shared_bytes_max()) return shape;
    if (steps == 1 && shape.rows_per_block > 1) {
      shape.rows_per_block /= 2;
      ++steps;
    }
  }
}

template <int kTokens>
void launch_few(FloatJobs& jobs, FloatRows x, uint32_t rows, cudaStream_t stream) {
  const uint32_t groups = (rows + kTokens - 1) / kTokens;
  const FewShape shape = shape_of(jobs, kTokens, groups);
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    jobs.jobs[i].first_block = blocks;
    blocks += (jobs.jobs[i].product.matrix.rows + shape.rows_per_block - 1) / shape.rows_per_block;
  }
  launch(
      few_kernel<kTokens>,
      {.grid = dim3(blocks, groups),
       .block = kThreads,
       .shared_bytes = kStages * shape.stage_bytes(kTokens) + shape.rows_per_block * shape.converted_bytes},
      stream, jobs, shape, x, rows);
}

}  // namespace

void multiply_f32_few(FloatJobs jobs, FloatRows x, uint32_t rows, cudaStream_t stream) {
  if (rows == 1) return launch_few<1>(jobs, x, rows, stream);
  if (rows == 2) return launch_few<2>(jobs, x, rows, stream);
  if (rows <= 4) return launch_few<4>(jobs, x, rows, stream);
  launch_few<8>(jobs, x, rows, stream);
}

}  // namespace strata::gpu_worker::cuda
