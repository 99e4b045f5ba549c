// Events. What an event stands for is a number of records begun and completed; those of an interprocess event
// lie in a memfd that other processes map.

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "gpu-worker/cuda/emulation/streams.h"

namespace strata::gpu_worker::cuda::emulation {
namespace {

struct EventWords {
  std::atomic<uint64_t> recorded{0};
  std::atomic<uint64_t> completed{0};
  std::atomic<int64_t> completed_ns{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "a lock would live in one process only");

struct IpcEvent {
  int process;
  int fd;
};
static_assert(sizeof(IpcEvent) <= sizeof(cudaIpcEventHandle_t));

void complete(EventWords& words, uint64_t record) {
  words.completed_ns.store(std::chrono::steady_clock::now().time_since_epoch().count());
  words.completed.store(record);
}

// Polls: the words may be those of another process.
void wait_for(const EventWords& words, uint64_t record) {
  for (uint32_t turn = 0; words.completed.load() < record; ++turn) {
    if (turn < 100) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

std::shared_ptr<EventWords> map_words(int fd) {
  void* memory = mmap(nullptr, sizeof(EventWords), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<EventWords*>(memory), [](EventWords* words) { munmap(words, sizeof(EventWords)); }};
}

}  // namespace
}  // namespace strata::gpu_worker::cuda::emulation

using namespace strata::gpu_worker::cuda::emulation;

struct CUevent_st {
  unsigned flags = 0;
  int fd = -1;
  std::shared_ptr<EventWords> words;
  std::shared_ptr<Capture> capture;  // of the last record, if that was captured
  std::vector<uint32_t> tail;
};

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  auto made = std::make_unique<CUevent_st>();
  made->flags = flags;
  if ((flags & cudaEventInterprocess) != 0) {
    if ((flags & cudaEventDisableTiming) == 0) return remember(cudaErrorInvalidValue);
    made->fd = memfd_create("strata-emulated-event", MFD_CLOEXEC);
    if (made->fd < 0 || ftruncate(made->fd, sizeof(EventWords)) != 0)
      return remember(cudaErrorMemoryAllocation);
    made->words = map_words(made->fd);  // zeros are a new EventWords
    if (made->words == nullptr) return remember(cudaErrorMemoryAllocation);
  } else {
    made->words = std::make_shared<EventWords>();
  }
  *event = made.release();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return remember(cudaErrorInvalidResourceHandle);
  if (event->fd >= 0) close(event->fd);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
  if (event == nullptr) return remember(cudaErrorInvalidResourceHandle);
  {
    std::lock_guard lock(streams().mutex);
    CUstream_st* stream = streams().find(handle);
    if (stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
    event->capture = flags == cudaEventRecordExternal ? nullptr : stream->capture;
    if (event->capture != nullptr) {
      event->tail = stream->tail;
      return cudaSuccess;
    }
    if (stream->capture == nullptr) {
      const uint64_t record = event->words->recorded.fetch_add(1) + 1;
      streams().push(*stream, [words = event->words, record] { complete(*words, record); });
      return cudaSuccess;
    }
  }
  return remember(enqueue(handle, NodeKind::kEvent,
                          [words = event->words] { complete(*words, words->recorded.fetch_add(1) + 1); }));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  if (event == nullptr) return remember(cudaErrorInvalidResourceHandle);
  {
    std::lock_guard lock(streams().mutex);
    CUstream_st* stream = streams().find(handle);
    if (stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
    if (flags != cudaEventWaitExternal) {
      const auto& active = streams().captures;
      const bool captured = std::find(active.begin(), active.end(), event->capture) != active.end();
      if (stream->capture != nullptr && (!captured || event->capture != stream->capture)) {
        stream->capture->invalid = true;
        return remember(cudaErrorStreamCaptureIsolation);
      }
      if (captured) {
        if (stream->capture == nullptr) {
          stream->capture = event->capture;
          stream->capture->members.push_back(stream);
          stream->tail.clear();
        }
        for (const uint32_t node : event->tail) {
          if (std::find(stream->tail.begin(), stream->tail.end(), node) == stream->tail.end())
            stream->tail.push_back(node);
        }
        return cudaSuccess;
      }
    }
    if (stream->capture == nullptr) {
      const uint64_t record = event->words->recorded.load();
      streams().push(*stream, [words = event->words, record] { wait_for(*words, record); });
      return cudaSuccess;
    }
  }
  return remember(enqueue(handle, NodeKind::kEvent,
                          [words = event->words] { wait_for(*words, words->recorded.load()); }));
}

namespace {
bool is_captured(cudaEvent_t event) {
  std::lock_guard lock(streams().mutex);
  const auto& active = streams().captures;
  return std::find(active.begin(), active.end(), event->capture) != active.end();
}
}  // namespace

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event == nullptr) return remember(cudaErrorInvalidResourceHandle);
  if (is_captured(event)) return remember(cudaErrorCapturedEvent);
  return event->words->completed.load() >= event->words->recorded.load() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event == nullptr) return remember(cudaErrorInvalidResourceHandle);
  if (is_captured(event)) return remember(cudaErrorCapturedEvent);
  wait_for(*event->words, event->words->recorded.load());
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (begin == nullptr || end == nullptr) return remember(cudaErrorInvalidResourceHandle);
  if (((begin->flags | end->flags) & cudaEventDisableTiming) != 0)
    return remember(cudaErrorInvalidResourceHandle);
  for (const cudaEvent_t event : {begin, end}) {
    if (event->words->recorded.load() == 0) return remember(cudaErrorInvalidResourceHandle);
    if (const cudaError_t error = cudaEventQuery(event); error != cudaSuccess) return error;
  }
  *ms = static_cast<float>(
      static_cast<double>(end->words->completed_ns.load() - begin->words->completed_ns.load()) * 1e-6);
  return cudaSuccess;
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  if (event == nullptr || event->fd < 0) return remember(cudaErrorInvalidResourceHandle);
  *handle = {};
  const IpcEvent ipc = {getpid(), event->fd};
  std::memcpy(handle, &ipc, sizeof(ipc));
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  IpcEvent ipc = {};
  std::memcpy(&ipc, &handle, sizeof(ipc));
  const int fd = open(fmt::format("/proc/{}/fd/{}", ipc.process, ipc.fd).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return remember(cudaErrorInvalidResourceHandle);
  auto opened = std::make_unique<CUevent_st>();
  opened->flags = cudaEventInterprocess | cudaEventDisableTiming;
  opened->words = map_words(fd);
  close(fd);
  if (opened->words == nullptr) return remember(cudaErrorInvalidResourceHandle);
  *event = opened.release();
  return cudaSuccess;
}
