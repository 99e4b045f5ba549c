#include "gpu-worker/cuda/expert_stream.h"

#include <algorithm>
#include <utility>

#include "gpu-worker/cuda/runtime.h"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {

ExpertStream::ExpertStream(const ExpertStreamOptions& options) : options_(options) {
  CHECK(options.batch_experts > 0 && options.ring_batches > 0);
}

Result<ExpertStream> ExpertStream::create(const ExpertStreamOptions& options) {
  ExpertStream stream(options);
  TRY_CUDA(cudaStreamCreateWithFlags(&stream.copies_, cudaStreamNonBlocking));
  for (auto* events : {&stream.landed_, &stream.free_}) {
    for (uint32_t i = 0; i < options.ring_batches; ++i) {
      cudaEvent_t event = nullptr;
      TRY_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      events->push_back(event);
    }
  }
  return stream;
}

ExpertStream::ExpertStream(ExpertStream&& other) noexcept
    : options_(other.options_),
      places_(other.places_),
      copies_(std::exchange(other.copies_, nullptr)),
      landed_(std::exchange(other.landed_, {})),
      free_(std::exchange(other.free_, {})),
      batches_(std::move(other.batches_)) {}

ExpertStream::~ExpertStream() {
  for (const auto* events : {&landed_, &free_}) {
    for (cudaEvent_t event : *events) cudaEventDestroy(event);
  }
  if (copies_ != nullptr) cudaStreamDestroy(copies_);
}

void ExpertStream::begin(const ExpertPlaceTables& places, cudaStream_t compute) {
  places_ = &places;
  batches_.clear();
  for (uint32_t layer = 0; layer < options_.weights->layers.size(); ++layer) {
    const auto count = static_cast<uint32_t>(places.copied(layer).size());
    for (uint32_t first = 0; first < count; first += options_.batch_experts)
      batches_.push_back({layer, first, std::min(options_.batch_experts, count - first)});
  }
  copied_ = awaited_ = released_ = 0;
  for (cudaEvent_t event : free_) cudaEventRecord(event, compute);
  copy_ahead();
}

uint32_t ExpertStream::batches(uint32_t layer) const {
  const auto count = static_cast<uint32_t>(places_->copied(layer).size());
  return (count + options_.batch_experts - 1) / options_.batch_experts;
}

void ExpertStream::copy_ahead() {
  for (; copied_ < batches_.size() && copied_ < released_ + options_.ring_batches; ++copied_) {
    // A layer's batch b lies where the kernels compute it to be: in part b % ring_batches of the ring. Where
    // the last batches of the layer before lie in the same part, this one waits for them.
    const Batch& batch = batches_[copied_];
    const uint32_t ring = batch.first / options_.batch_experts % options_.ring_batches;
    bool taken = false;
    for (uint32_t i = released_; i < copied_; ++i)
      taken = taken || batches_[i].first / options_.batch_experts % options_.ring_batches == ring;
    if (taken) return;
    copy(batch, ring);
  }
}

void ExpertStream::copy(const Batch& batch, uint32_t ring) {
  cudaStreamWaitEvent(copies_, free_[ring], 0);
  const model::LayerExperts& layer = options_.weights->layers[batch.layer].moe.experts;
  const std::vector<uint32_t>& experts = places_->copied(batch.layer);
  std::byte* slots = options_.staging + uint64_t{ring} * options_.batch_experts * options_.slot_bytes;
  struct Part {
    const model::Matrix* matrix;
    std::size_t expert_bytes, offset;
  };
  const Part parts[] = {{&layer.gate, layer.gate_expert_bytes, 0},
                        {&layer.up, layer.up_expert_bytes, layer.up_offset()},
                        {&layer.down, layer.down_expert_bytes, layer.down_offset()}};
  // Neighbours in the file go in one copy.
  for (uint32_t begin = 0; begin < batch.count;) {
    uint32_t end = begin + 1;
    while (end < batch.count && experts[batch.first + end] == experts[batch.first + end - 1] + 1) ++end;
    for (const Part& part : parts) {
      const std::size_t bytes = std::size_t{part.matrix->rows} * part.matrix->row_bytes;
      cudaMemcpy2DAsync(slots + begin * options_.slot_bytes + part.offset, options_.slot_bytes,
                        part.matrix->data + experts[batch.first + begin] * part.expert_bytes,
                        part.expert_bytes, bytes, end - begin, cudaMemcpyHostToDevice, copies_);
      bytes_copied_ += bytes * (end - begin);
    }
    begin = end;
  }
  cudaEventRecord(landed_[ring], copies_);
}

void ExpertStream::await_next(cudaStream_t compute) {
  CHECK(awaited_ == released_ && awaited_ < copied_, "batch {} of {}, {} copied, {} released", awaited_,
        batches_.size(), copied_, released_);
  const uint32_t ring = batches_[awaited_++].first / options_.batch_experts % options_.ring_batches;
  cudaStreamWaitEvent(compute, landed_[ring], 0);
}

void ExpertStream::release(cudaStream_t compute) {
  CHECK(released_ + 1 == awaited_);
  const uint32_t ring = batches_[released_++].first / options_.batch_experts % options_.ring_batches;
  cudaEventRecord(free_[ring], compute);
  copy_ahead();
}

}  // namespace strata::gpu_worker::cuda
