#include "gpu-worker/cuda/products_f32.h"

#include "gpu-worker/cuda/products_f32_packed.h"
#include "gpu-worker/cuda/products_f32_parts.cuh"
#include "gpu-worker/cuda/weight_readers.cuh"
#include "services/base/check.h"
#include "services/gguf/tensor_type.h"

namespace strata::gpu_worker::cuda {
namespace {

void multiply(FloatJobs& jobs, FloatRows x, uint32_t rows, cudaStream_t stream, FloatScratch scratch) {
  if (rows == 0 || jobs.count == 0) return;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    const DeviceMatrix& matrix = jobs.jobs[i].product.matrix;
    CHECK(matrix.cols == jobs.jobs[0].product.matrix.cols, "{} and {} columns", matrix.cols,
          jobs.jobs[0].product.matrix.cols);
  }
  if (rows >= kManyRows && multiply_f32_many(jobs, x, rows, scratch, stream)) return;
  FloatJobs direct, others;
  direct.divisor = others.divisor = jobs.divisor;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    FloatJobs& to = has_direct_reader(jobs.jobs[i].product.matrix.type) ? direct : others;
    to.jobs[to.count++] = jobs.jobs[i];
  }
  if (direct.count > 0) multiply_f32_lanes(direct, x, rows, stream);
  if (others.count > 0) multiply_f32_few(others, x, rows, stream);
}

}  // namespace

FloatJob float_job(const ProductJob& product, Finish finish) {
  const gguf::TensorTypeInfo& info = gguf::tensor_type_info(product.matrix.type);
  return {.product = product,
          .block_values = info.block_values,
          .block_bytes = info.block_bytes,
          .finish = finish,
          .shape = {}};
}

void multiply_f32(std::span<const ProductJob> products, FloatRows x, uint32_t rows, cudaStream_t stream,
                  FloatScratch scratch) {
  CHECK(products.size() <= kProductJobsMax, "{} products", products.size());
  FloatJobs jobs;
  for (const ProductJob& product : products) jobs.jobs[jobs.count++] = float_job(product, Finish::kNone);
  multiply(jobs, x, rows, stream, scratch);
}

void multiply_f32(std::span<const FinishedJob> products, float divisor, FloatRows x, uint32_t rows,
                  cudaStream_t stream, FloatScratch scratch) {
  CHECK(products.size() <= kProductJobsMax, "{} products", products.size());
  FloatJobs jobs;
  jobs.divisor = divisor;
  for (const FinishedJob& job : products) jobs.jobs[jobs.count++] = float_job(job.product, job.finish);
  multiply(jobs, x, rows, stream, scratch);
}

}  // namespace strata::gpu_worker::cuda
