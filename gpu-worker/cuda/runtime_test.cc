// Streams, events, graphs and memory as the device uses them: in the emulation and on a GPU, where the same
// must hold.

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "gpu-worker/cuda/device_buffer.h"
#include "gpu-worker/cuda/device_code_test_kernels.h"

namespace strata::gpu_worker::cuda {
namespace {

using testing::Each;

#define ASSERT_CUDA(...) ASSERT_EQ((__VA_ARGS__), cudaSuccess)

class Streams : public testing::Test {
 protected:
  void SetUp() override {
    for (cudaStream_t* stream : {&main_, &side_})
      ASSERT_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&fork_, &join_})
      ASSERT_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    values_ = make(1.0f);
    others_ = make(10.0f);
  }
  void TearDown() override {
    for (cudaStream_t stream : {main_, side_}) ASSERT_CUDA(cudaStreamDestroy(stream));
    for (cudaEvent_t event : {fork_, join_}) ASSERT_CUDA(cudaEventDestroy(event));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  static DeviceBuffer<float> make(float value) {
    return DeviceBuffer<float>::of(std::vector<float>(kCount, value)).value();
  }
  static std::vector<float> values_of(const DeviceBuffer<float>& buffer) { return buffer.download().value(); }
  void scale(const DeviceBuffer<float>& buffer, float factor, float addend, cudaStream_t stream) {
    run_scale(buffer.data(), kCount, factor, addend, stream);
  }
  // values = values * 2 + 1 and others = others * 3 side by side, then values = values * 10 + addend.
  void capture(float addend, cudaGraph_t* graph, bool joins = true) {
    ASSERT_CUDA(cudaStreamBeginCapture(main_, cudaStreamCaptureModeThreadLocal));
    scale(values_, 2, 1, main_);
    ASSERT_CUDA(cudaEventRecord(fork_, main_));
    ASSERT_CUDA(cudaStreamWaitEvent(side_, fork_, 0));
    scale(others_, 3, 0, side_);
    scale(values_, 10, addend, main_);
    if (joins) {
      ASSERT_CUDA(cudaEventRecord(join_, side_));
      ASSERT_CUDA(cudaStreamWaitEvent(main_, join_, 0));
    }
    const cudaError_t error = cudaStreamEndCapture(main_, graph);
    ASSERT_EQ(error, joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
  }

  static constexpr uint32_t kCount = 1000;
  cudaStream_t main_ = nullptr, side_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  DeviceBuffer<float> values_, others_;
};

TEST_F(Streams, EventsOrderStreams) {
  auto gate = PinnedBuffer<uint32_t>::create(2).value();
  for (uint32_t& word : gate.span()) word = 0;
  auto counter = DeviceBuffer<uint32_t>::of(std::vector<uint32_t>(1)).value();
  run_wait_for(&gate.data()[0], 1, counter.data(), &gate.data()[1], main_);
  scale(values_, 2, 0, main_);
  ASSERT_CUDA(cudaEventRecord(fork_, main_));
  ASSERT_CUDA(cudaStreamWaitEvent(side_, fork_, 0));
  scale(values_, 1, 5, side_);
  EXPECT_EQ(cudaEventQuery(fork_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(side_), cudaErrorNotReady);
  std::atomic_ref(gate.data()[0]).store(1, std::memory_order_release);
  ASSERT_CUDA(cudaStreamSynchronize(side_));
  EXPECT_EQ(cudaEventQuery(fork_), cudaSuccess);
  EXPECT_THAT(values_of(values_), Each(7.0f));
  EXPECT_THAT(counter.download().value(), testing::ElementsAre(1u));
}

TEST_F(Streams, TheDefaultStreamWaitsForBlockingStreams) {
  cudaStream_t blocking = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&blocking));
  scale(values_, 2, 0, blocking);
  scale(values_, 1, 3, nullptr);
  scale(values_, 2, 0, blocking);
  EXPECT_THAT(values_of(values_), Each(10.0f));
  ASSERT_CUDA(cudaStreamDestroy(blocking));
}

TEST_F(Streams, EventsMeasureTime) {
  cudaEvent_t begin = nullptr, end = nullptr;
  ASSERT_CUDA(cudaEventCreate(&begin));
  ASSERT_CUDA(cudaEventCreate(&end));
  ASSERT_CUDA(cudaEventRecord(begin, main_));
  scale(values_, 2, 0, main_);
  ASSERT_CUDA(cudaEventRecord(end, main_));
  ASSERT_CUDA(cudaEventSynchronize(end));
  float ms = -1;
  ASSERT_CUDA(cudaEventElapsedTime(&ms, begin, end));
  EXPECT_GE(ms, 0.0f);
  EXPECT_LT(ms, 10000.0f);
  ASSERT_CUDA(cudaEventDestroy(begin));
  ASSERT_CUDA(cudaEventDestroy(end));
}

TEST_F(Streams, AGraphRunsWhatWasCapturedEachTimeItIsLaunched) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_NO_FATAL_FAILURE(capture(4, &graph));
  EXPECT_THAT(values_of(values_), Each(1.0f)) << "capturing runs nothing";
  std::size_t node_count = 0;
  ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &node_count));
  EXPECT_EQ(node_count, 3u);
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  for (const float expected : {34.0f, 694.0f}) {
    ASSERT_CUDA(cudaGraphLaunch(exec, main_));
    ASSERT_CUDA(cudaStreamSynchronize(main_));
    EXPECT_THAT(values_of(values_), Each(expected));
  }
  EXPECT_THAT(values_of(others_), Each(90.0f));
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(Streams, AGraphTakesNewArgumentsOfTheSameNodes) {
  cudaGraph_t graph = nullptr, other_arguments = nullptr, other_shape = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_NO_FATAL_FAILURE(capture(4, &graph));
  ASSERT_NO_FATAL_FAILURE(capture(5, &other_arguments));
  ASSERT_CUDA(cudaStreamBeginCapture(main_, cudaStreamCaptureModeThreadLocal));
  scale(values_, 1, 100, main_);
  ASSERT_CUDA(cudaStreamEndCapture(main_, &other_shape));

  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaGraphExecUpdateResultInfo info;
  ASSERT_CUDA(cudaGraphExecUpdate(exec, other_arguments, &info));
  EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
  EXPECT_EQ(cudaGraphExecUpdate(exec, other_shape, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  EXPECT_EQ(cudaGetLastError(), cudaErrorGraphExecUpdateFailure);

  ASSERT_CUDA(cudaGraphLaunch(exec, main_));
  ASSERT_CUDA(cudaStreamSynchronize(main_));
  EXPECT_THAT(values_of(values_), Each(35.0f));
  for (cudaGraph_t made : {graph, other_arguments, other_shape}) ASSERT_CUDA(cudaGraphDestroy(made));
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(Streams, ACaptureFailsWhenAForkIsNotJoined) {
  cudaGraph_t graph = nullptr;
  ASSERT_NO_FATAL_FAILURE(capture(4, &graph, /*joins=*/false));
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureUnjoined);
}

TEST_F(Streams, WaitingDuringACaptureSpoilsIt) {
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(main_, cudaStreamCaptureModeThreadLocal));
  scale(values_, 2, 0, main_);
  EXPECT_EQ(cudaStreamSynchronize(main_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(main_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  cudaGetLastError();
  scale(values_, 2, 0, main_);
  ASSERT_CUDA(cudaStreamSynchronize(main_));
  EXPECT_THAT(values_of(values_), Each(2.0f));
}

TEST_F(Streams, CopiesOfRowsKeepThePitch) {
  std::vector<float> rows(4 * 6);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  ASSERT_CUDA(cudaMemcpy2DAsync(values_.data(), 3 * sizeof(float), rows.data(), 6 * sizeof(float),
                                2 * sizeof(float), 4, cudaMemcpyHostToDevice, main_));
  ASSERT_CUDA(cudaStreamSynchronize(main_));
  const std::vector<float> out = values_of(values_);
  EXPECT_THAT(std::vector(out.begin(), out.begin() + 12),
              testing::ElementsAre(0, 1, 1, 6, 7, 1, 12, 13, 1, 18, 19, 1));
}

TEST_F(Streams, HostFunctionsRunInOrder) {
  std::atomic<int> calls{0};
  scale(values_, 2, 0, main_);
  ASSERT_CUDA(cudaLaunchHostFunc(
      main_, [](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); }, &calls));
  ASSERT_CUDA(cudaStreamSynchronize(main_));
  EXPECT_EQ(calls.load(), 1);
}

TEST_F(Streams, RegisteredHostMemoryIsReadByKernels) {
  alignas(4096) static float page[1024];
  for (float& value : page) value = 3;
  ASSERT_CUDA(cudaHostRegister(page, sizeof(page), cudaHostRegisterMapped));
  float* device = nullptr;
  ASSERT_CUDA(cudaHostGetDevicePointer(&device, page, 0));
  run_scale(device, kCount, 2, 1, main_);
  ASSERT_CUDA(cudaStreamSynchronize(main_));
  EXPECT_EQ(page[0], 7.0f);
  EXPECT_EQ(page[kCount], 3.0f);
  ASSERT_CUDA(cudaHostUnregister(page));
}

TEST(Errors, HaveTheNameOfTheCallAndTheError) {
  void* memory = nullptr;
  const Status status = cuda_status(cudaMalloc(&memory, std::size_t{1} << 60), "cudaMalloc(&memory, bytes)");
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), testing::StartsWith("cudaMalloc: cudaErrorMemoryAllocation: "));
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "taken by the call before";
  EXPECT_TRUE(cuda_status(cudaSuccess, "cudaMalloc(x)").ok());
}

TEST(Errors, AnImpossibleLaunchIsReportedAfterwards) {
  run_warp_words(nullptr, nullptr, 2048, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// --- Two processes. The other one is this program again: CUDA does not survive a fork.
std::string to_text(const void* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += fmt::format("{:02x}", static_cast<const unsigned char*>(bytes)[i]);
  return text;
}
template <class T>
T from_text(const char* text) {
  T value;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    reinterpret_cast<unsigned char*>(&value)[i] =
        static_cast<unsigned char>(std::stoul(std::string(text + 2 * i, 2), nullptr, 16));
  }
  return value;
}

// Doubles what lies in the memory of the first process after its event. The memory belongs to the driver as
// long as it is open here.
TEST(TwoProcesses, DISABLED_Other) {
  void* memory = nullptr;
  cudaEvent_t event = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaIpcOpenMemHandle(&memory, from_text<cudaIpcMemHandle_t>(std::getenv("STRATA_TEST_MEMORY")),
                                   cudaIpcMemLazyEnablePeerAccess));
  ASSERT_CUDA(
      cudaIpcOpenEventHandle(&event, from_text<cudaIpcEventHandle_t>(std::getenv("STRATA_TEST_EVENT"))));
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaStreamWaitEvent(stream, event, 0));
  run_scale(static_cast<float*>(memory), 1000, 2, 0, stream);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  ASSERT_CUDA(cudaIpcCloseMemHandle(memory));
  ASSERT_CUDA(cudaEventDestroy(event));
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(TwoProcesses, ShareMemoryAndEvents) {
  auto values = DeviceBuffer<float>::of(std::vector<float>(1000, 1.0f)).value();
  cudaEvent_t event = nullptr;
  ASSERT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  cudaIpcMemHandle_t memory_handle;
  cudaIpcEventHandle_t event_handle;
  ASSERT_CUDA(cudaIpcGetMemHandle(&memory_handle, values.data()));
  ASSERT_CUDA(cudaIpcGetEventHandle(&event_handle, event));

  // The event is recorded behind a kernel that waits: the other process must wait, too.
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  auto gate = PinnedBuffer<uint32_t>::create(2).value();
  for (uint32_t& word : gate.span()) word = 0;
  auto counter = DeviceBuffer<uint32_t>::of(std::vector<uint32_t>(1)).value();
  run_wait_for(&gate.data()[0], 1, counter.data(), &gate.data()[1], stream);
  run_scale(values.data(), 1000, 1, 4, stream);
  ASSERT_CUDA(cudaEventRecord(event, stream));

  setenv("STRATA_TEST_MEMORY", to_text(&memory_handle, sizeof(memory_handle)).c_str(), 1);
  setenv("STRATA_TEST_EVENT", to_text(&event_handle, sizeof(event_handle)).c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "runtime_test", "--gtest_also_run_disabled_tests",
          "--gtest_filter=TwoProcesses.DISABLED_Other", nullptr);
    _exit(127);
  }
  ASSERT_GT(child, 0);
  usleep(50000);
  std::atomic_ref(gate.data()[0]).store(1, std::memory_order_release);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_THAT(values.download().value(), Each(10.0f)) << "(1 + 4) * 2, in this order";
  ASSERT_CUDA(cudaStreamDestroy(stream));
  ASSERT_CUDA(cudaEventDestroy(event));
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
