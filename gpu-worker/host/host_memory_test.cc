// The plan of the host device against what it really allocates: every block of the heap is counted. A program
// of its own, because it replaces operator new.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "gpu-worker/host/host_device.h"
#include "services/base/check.h"
#include "tests/support/test_data.h"

namespace {

std::atomic<int64_t> live_bytes{0}, most_bytes{0};

void* take(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t now = live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  for (int64_t most = most_bytes; now > most && !most_bytes.compare_exchange_weak(most, now);) {
  }
  return memory;
}
void give(void* memory) {
  if (memory != nullptr) live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return take(bytes); }
void* operator new[](std::size_t bytes) { return take(bytes); }
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, std::size_t) noexcept { give(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give(memory); }

namespace strata::gpu_worker {
namespace {

struct Case {
  const char* name;
  uint32_t sequences, context, chunk;
};

class HostMemory : public testing::TestWithParam<Case> {};

// A whole prompt, so that buffers that grow with the position have grown, too.
TEST_P(HostMemory, ThePlanIsWhatIsAllocated) {
  const Case& what = GetParam();
  const auto file = gguf::GgufFile::open(tests::models_golden_model().string());
  ASSERT_TRUE(file) << file.error().message();
  const auto weights = model::load_model(*file);
  ASSERT_TRUE(weights) << weights.error().message();
  config::Settings settings;
  settings.engine_sequences.set(what.sequences);
  settings.engine_prefill_chunk_tokens.set(config::Count(what.chunk));
  settings.cpu_experts_workers.set(0);
  settings.device_threads.set(2);
  ASSERT_TRUE(settings.find("experts.slots")->parse("0").ok());
  const auto plan = make_host_plan(*weights, settings, what.context, uint64_t{8} << 30);
  ASSERT_TRUE(plan) << plan.error().message();
  ExpertWorkers workers({.run_id = "hostmemory", .geometry = plan->board, .expected = 0, .keep_awake = true});

  const int64_t before = live_bytes;
  most_bytes = before;
  {
    const auto device = HostDevice::create(
        {.weights = &*weights, .plan = *plan, .threads = 2, .run_id = "hostmemory", .workers = &workers});
    ASSERT_TRUE(device) << device.error().message();
    const auto sequence = (*device)->open_sequence();
    ASSERT_TRUE(sequence);
    const model::SamplingParams sampling{.temperature = 0.7f, .top_k = 0, .seed = 1};
    std::vector<RowChoice> choices;
    for (uint32_t position = 0; position < what.context;) {
      std::vector<DeviceRow> rows;
      for (; rows.size() < what.chunk && position < what.context; ++position)
        rows.push_back({.sequence = *sequence,
                        .token = static_cast<int32_t>(position * 7919 % weights->config.vocab),
                        .is_prompt = true,
                        .sample = {}});
      rows.back().sample = {.params = &sampling, .position = position, .prompt = {}, .generated = {}};
      ASSERT_TRUE((*device)->run_window(rows, choices).ok());
    }
  }
  const auto taken = static_cast<double>(most_bytes - before);
  const auto planned = static_cast<double>(plan->item("kv").bytes + plan->item("checkpoints").bytes +
                                           plan->item("buffers").bytes);
  // Upwards: what products keep per thread and the allocator's rounding. Downwards: a plan that says too much
  // would refuse what fits.
  EXPECT_LT(taken, planned * 1.02 + (1 << 19));
  EXPECT_GT(taken, planned * 0.85 - (1 << 19));
}

INSTANTIATE_TEST_SUITE_P(Shapes, HostMemory,
                         testing::Values(Case{"small", 1, 64, 16}, Case{"chunks", 2, 512, 256},
                                         Case{"long", 1, 1500, 96}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace strata::gpu_worker
