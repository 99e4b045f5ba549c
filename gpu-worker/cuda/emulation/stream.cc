#include "gpu-worker/cuda/emulation/stream.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "gpu-worker/cuda/emulation/streams.h"

namespace strata::gpu_worker::cuda::emulation {

std::shared_ptr<Worker> Worker::start() {
  auto worker = std::make_shared<Worker>();
  std::thread(serve, worker).detach();
  return worker;
}

uint64_t Worker::push(Operation operation) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(operation));
  changed_.notify_all();
  return ++pushed_;
}

uint64_t Worker::pushed() {
  std::lock_guard lock(mutex_);
  return pushed_;
}

bool Worker::completed(uint64_t number) {
  std::lock_guard lock(mutex_);
  return completed_ >= number;
}

void Worker::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= number; });
}

void Worker::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Worker::serve(std::shared_ptr<Worker> self) {
  std::unique_lock lock(self->mutex_);
  for (;;) {
    self->changed_.wait(lock, [&] { return self->closed_ || !self->queue_.empty(); });
    if (self->queue_.empty()) return;
    {
      const Operation operation = std::move(self->queue_.front());
      self->queue_.pop_front();
      lock.unlock();
      operation();
    }
    lock.lock();
    ++self->completed_;
    self->changed_.notify_all();
  }
}

// Never destroyed: threads of streams outlive main().
Streams& streams() {
  static auto& streams = *new Streams;
  return streams;
}

Streams::Streams() { add(0, &default_stream_); }

void Streams::add(unsigned flags, cudaStream_t* stream) {
  *stream = new CUstream_st;
  (*stream)->flags = flags;
  all_.push_back(*stream);
}

cudaStream_t Streams::find(cudaStream_t stream) const {
  if (stream == nullptr) return default_stream_;
  return std::find(all_.begin(), all_.end(), stream) == all_.end() ? nullptr : stream;
}

Worker& Streams::worker_of(CUstream_st& stream) {
  if (stream.process != getpid()) {
    // In a child of fork() the parent's worker is a queue that nobody serves, with locks in any state: it is
    // left alone.
    if (stream.worker != nullptr) new std::shared_ptr<Worker>(std::move(stream.worker));
    stream.worker = Worker::start();
    stream.process = getpid();
  }
  return *stream.worker;
}

bool Streams::orders_with_default(const CUstream_st& stream) const {
  return &stream != default_stream_ && (stream.flags & cudaStreamNonBlocking) == 0;
}

uint64_t Streams::push(CUstream_st& stream, Operation run) {
  // The default stream waits for all streams that were not made cudaStreamNonBlocking, and they wait for it.
  for (CUstream_st* other : all_) {
    const bool ordered = &stream == default_stream_ ? orders_with_default(*other)
                                                    : other == default_stream_ && orders_with_default(stream);
    if (!ordered || other->process != getpid()) continue;
    const uint64_t number = other->worker->pushed();
    if (other->worker->completed(number)) continue;
    worker_of(stream).push([worker = other->worker, number] { worker->wait(number); });
  }
  return worker_of(stream).push(std::move(run));
}

cudaError_t enqueue(cudaStream_t handle, NodeKind kind, Operation run) {
  std::lock_guard lock(streams().mutex);
  CUstream_st* stream = streams().find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture == nullptr) {
    streams().push(*stream, std::move(run));
    return cudaSuccess;
  }
  if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  std::vector<Node>& nodes = stream->capture->graph->nodes;
  nodes.push_back({kind, std::move(run), stream->tail});
  stream->tail = {static_cast<uint32_t>(nodes.size() - 1)};
  return cudaSuccess;
}

void wait_for_all() {
  std::vector<std::pair<std::shared_ptr<Worker>, uint64_t>> ends;
  {
    std::lock_guard lock(streams().mutex);
    for (const CUstream_st* stream : streams().all()) {
      if (stream->process == getpid()) ends.emplace_back(stream->worker, stream->worker->pushed());
    }
  }
  for (const auto& [worker, number] : ends) worker->wait(number);
}

namespace {
thread_local cudaError_t last_error = cudaSuccess;
}  // namespace

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

}  // namespace strata::gpu_worker::cuda::emulation

using namespace strata::gpu_worker::cuda::emulation;

cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags > cudaStreamNonBlocking) return remember(cudaErrorInvalidValue);
  std::lock_guard lock(streams().mutex);
  streams().add(flags, stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard lock(streams().mutex);
  if (stream == nullptr || streams().find(stream) == nullptr) return remember(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return remember(cudaErrorStreamCaptureUnsupported);
  streams().remove(stream);
  return cudaSuccess;
}

void Streams::remove(cudaStream_t stream) {
  std::erase(all_, stream);
  if (stream->process == getpid()) stream->worker->close();  // what is queued still runs
  delete stream;
}

namespace {
// The end of what the stream holds now.
cudaError_t stream_end(cudaStream_t handle, std::shared_ptr<Worker>& worker, uint64_t& number) {
  std::lock_guard lock(streams().mutex);
  CUstream_st* stream = streams().find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  // An empty operation: where streams wait for each other, it comes after those waits, too.
  number = streams().push(*stream, [] {});
  worker = stream->worker;
  return cudaSuccess;
}
}  // namespace

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::shared_ptr<Worker> worker;
  uint64_t number = 0;
  if (const cudaError_t error = stream_end(stream, worker, number); error != cudaSuccess)
    return remember(error);
  worker->wait(number);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  std::lock_guard lock(streams().mutex);
  CUstream_st* stream = streams().find(handle);
  if (stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return remember(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->process != getpid()) return cudaSuccess;
  return stream->worker->completed(stream->worker->pushed()) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = check_no_capture(); error != cudaSuccess) return remember(error);
  wait_for_all();
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return remember(enqueue(stream, NodeKind::kHost, [function, argument] { function(argument); }));
}
