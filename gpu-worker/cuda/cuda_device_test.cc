// The cuda device against the host device: the same windows give the same bits, however they are cut,
// whatever is resident, whoever computes the misses. Judged by log-probabilities that the host computes from
// the device's logits: their equality needs equal logits.

#include "gpu-worker/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "gpu-worker/cuda/delta_net.h"
#include "gpu-worker/cuda/device_harness.h"
#include "gpu-worker/host/host_device.h"
#include "gpu-worker/state_names.h"
#include "gpu-worker/state_test_support.h"
#include "services/base/check.h"
#include "services/sys/cpus.h"
#include "tests/support/expert_board_support.h"
#include "tests/support/test_data.h"

namespace strata::gpu_worker::cuda {
namespace {

using Tokens = std::vector<int32_t>;

constexpr uint32_t kContext = 64;
constexpr uint32_t kSequences = 3;
constexpr uint32_t kSlots = 7;  // of states that are kept

model::ModelWeights load(const std::string& path) {
  auto file = gguf::GgufFile::open(path);
  CHECK(file.has_value(), "{}", file.error().message());
  auto loaded = model::load_model(*file);
  CHECK(loaded.has_value(), "{}", loaded.error().message());
  return std::move(*loaded);
}

// Float weights and three layers: what takes a second on a GPU takes many on the emulation.
const model::ModelWeights& tiny_weights() {
  static const model::ModelWeights weights = load((tests::tiny_folder() / "trunk-f32.gguf").string());
  return weights;
}
// Quantized weights of several types.
const model::ModelWeights& demo_weights() {
  static const model::ModelWeights weights = load(tests::models_golden_model().string());
  return weights;
}

Tokens made_up_tokens(const model::ModelWeights& weights, uint32_t count, uint32_t seed) {
  Tokens tokens;
  uint32_t value = seed;
  for (uint32_t i = 0; i < count; ++i) {
    value = value * 1664525 + 1013904223;
    tokens.push_back(static_cast<int32_t>((value >> 8) % weights.config.vocab));
  }
  return tokens;
}

// Sampled on the host, so that every bit of the logits counts.
model::SamplingParams all_bits() {
  return {.temperature = 1.0f, .top_k = 0, .seed = 7, .logprobs = true, .top_logprobs = 20};
}

struct Setup {
  std::string slots = "25%";
  std::string kv = "float32";
  uint32_t chunk = 40;
  uint32_t stream_rows_min = 32;
  std::string numerics = "reproducible";
  uint32_t context = kContext;
  uint64_t vram_budget = 0;  // 0: all of it
};

std::unique_ptr<config::Settings> settings_of(const Setup& setup) {
  auto settings = std::make_unique<config::Settings>();
  settings->engine_sequences.set(kSequences);
  settings->engine_context_tokens.set(setup.context);
  settings->engine_prefill_chunk_tokens.set(config::Count(setup.chunk));
  settings->experts_stream_tokens_min.set(setup.stream_rows_min);
  settings->cpu_experts_workers.set(0);
  settings->engine_checkpoints.set(config::Count(kSlots));
  CHECK(settings->find("experts.slots")->parse(setup.slots).ok());
  CHECK(settings->find("device.kv")->parse(setup.kv).ok());
  CHECK(settings->find("numerics")->parse(setup.numerics).ok());
  if (setup.vram_budget > 0)
    CHECK(settings->find("device.vram_budget")->parse(fmt::format("{}", setup.vram_budget)).ok());
  return settings;
}

class Cuda : public DeviceHarness {
 public:
  explicit Cuda(const model::ModelWeights& weights, const Setup& setup = {})
      : DeviceHarness(weights, *settings_of(setup), setup.context, "cudatest") {}
};

class Host {
 public:
  explicit Host(const model::ModelWeights& weights, uint32_t chunk = 40, uint32_t context = kContext) {
    config::Settings settings;
    settings.engine_sequences.set(kSequences);
    settings.engine_prefill_chunk_tokens.set(config::Count(chunk));
    settings.cpu_experts_workers.set(0);
    settings.engine_checkpoints.set(config::Count(kSlots));
    CHECK(settings.find("experts.slots")->parse("0").ok());
    auto plan = make_host_plan(weights, settings, context, sys::available_memory_bytes());
    CHECK(plan.has_value(), "{}", plan.error().message());
    workers_ = std::make_unique<ExpertWorkers>(
        ExpertWorkersOptions{.run_id = "cudatesthost", .geometry = plan->board, .expected = 0});
    auto device = HostDevice::create({.weights = &weights,
                                      .plan = *plan,
                                      .threads = 2,
                                      .run_id = "cudatesthost",
                                      .workers = workers_.get()});
    CHECK(device.has_value(), "{}", device.error().message());
    device_ = std::move(*device);
  }
  Device& device() { return *device_; }

 private:
  std::unique_ptr<ExpertWorkers> workers_;
  std::unique_ptr<Device> device_;
};

// What a window says about its rows: every number of every choice.
struct Said {
  uint32_t row;
  bool usable;
  int32_t id;
  float logprob;
  std::vector<std::pair<int32_t, float>> top;
  bool operator==(const Said&) const = default;
};
std::vector<Said> said(const std::vector<RowChoice>& choices) {
  std::vector<Said> all;
  for (const RowChoice& choice : choices)
    all.push_back({choice.row, choice.usable, choice.token.id, choice.token.logprob, choice.token.top});
  return all;
}

// A part of a window: so many of the sequence's tokens, the last of which wants a choice; the states behind
// some of them go into slots.
struct Capture {
  uint32_t behind;  // tokens of the part
  uint32_t slot;
};
struct Part {
  uint32_t sequence;
  uint32_t count;
  std::vector<Capture> captures = {};
};
using Script = std::vector<std::vector<Part>>;

// Runs the script; the sequences read their tokens one part after the other.
// `mask_of`: of the token behind the first `read` ones of a sequence, until it is called again.
using MaskOf = std::function<std::span<const uint32_t>(uint32_t sequence, uint32_t read)>;
std::vector<std::vector<Said>> run(Device& device, const std::vector<Tokens>& tokens, const Script& script,
                                   const model::SamplingParams& sampling, const MaskOf& mask_of = {}) {
  std::vector<SequenceId> ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    auto id = device.open_sequence();
    CHECK(id.has_value(), "{}", id.error().message());
    ids.push_back(*id);
  }
  std::vector<uint32_t> read(tokens.size());
  std::vector<std::vector<Said>> answers;
  for (const auto& parts : script) {
    std::vector<DeviceRow> rows;
    for (const Part& part : parts) {
      for (uint32_t i = 0; i < part.count; ++i) {
        DeviceRow row{.sequence = ids[part.sequence],
                      .token = tokens[part.sequence].at(read[part.sequence]++),
                      .is_prompt = part.count > 1,
                      .sample = {}};
        if (i + 1 == part.count)
          row.sample = {
              .params = &sampling,
              .position = read[part.sequence],
              .prompt = {},
              .generated = {},
              .mask = mask_of ? mask_of(part.sequence, read[part.sequence]) : std::span<const uint32_t>()};
        for (const Capture& capture : part.captures) {
          if (capture.behind == i + 1) row.capture = capture.slot;
        }
        rows.push_back(row);
      }
    }
    std::vector<RowChoice> choices;
    const Status status = device.run_window(rows, choices);
    EXPECT_TRUE(status.ok()) << status.message();
    answers.push_back(said(choices));
  }
  for (const SequenceId id : ids) device.close_sequence(id);
  return answers;
}

std::vector<Tokens> three_prompts(const model::ModelWeights& weights) {
  return {made_up_tokens(weights, 50, 1), made_up_tokens(weights, 30, 2), made_up_tokens(weights, 10, 3)};
}
// Chunks of many sizes, decoding of one to three sequences, and windows that hold both.
const Script kMixed = {{{0, 7}},
                       {{0, 1}},
                       {{1, 20}, {0, 1}},
                       {{0, 1}, {1, 1}},
                       {{0, 1}, {1, 1}},   // a shape's second time is captured, ...
                       {{0, 1}, {1, 1}},   // ... its third a graph
                       {{2, 5}, {0, 33}},  // copies experts
                       {{0, 1}, {1, 2}, {2, 3}},
                       {{0, 1}, {1, 1}}};

// A fixed part behind so many tokens without the keys that its tails do not count: whatever was there before.
std::vector<std::byte> counted(const StateLayout& layout, std::vector<std::byte> fixed, uint32_t tokens) {
  const model::ModelConfig& config = tiny_weights().config;
  for (const StateLayout::Part& part : layout.fixed_parts()) {
    if (!part.name.starts_with(state_name::kBlockTail)) continue;
    const auto layer = std::stoul(part.name.substr(part.name.find('.') + 1));
    const std::size_t counts =
        tokens % config.block_tokens[layer] * std::size_t{config.indexer_dim} * sizeof(float);
    std::fill(fixed.begin() + static_cast<std::ptrdiff_t>(part.offset + counts),
              fixed.begin() + static_cast<std::ptrdiff_t>(part.offset + part.bytes), std::byte{0});
  }
  return fixed;
}
std::vector<std::byte> kept_in(Device& device, uint32_t slot, uint32_t tokens) {
  std::vector<std::byte> fixed(device.state_layout().fixed_bytes());
  EXPECT_TRUE(device.read_slot(slot, fixed).ok());
  return counted(device.state_layout(), std::move(fixed), tokens);
}

class CudaDeviceTest : public testing::Test {
 protected:
  void TearDown() override {
    shm::remove_stale_segments("cudatest");
    shm::remove_stale_segments("cudatesthost");
  }
};

TEST_F(CudaDeviceTest, GivesTheBitsOfTheHostDevice) {
  const auto tokens = three_prompts(tiny_weights());
  Host host(tiny_weights());
  const auto expected = run(host.device(), tokens, kMixed, all_bits());
  Cuda cuda(tiny_weights(), {.slots = "50%"});
  cuda.fill(static_cast<uint32_t>(tiny_weights().layers.size()) * 3);
  EXPECT_EQ(run(cuda.device(), tokens, kMixed, all_bits()), expected);
  EXPECT_EQ(run(cuda.device(), tokens, kMixed, all_bits()), expected) << "in sequences that were used before";
}

TEST_F(CudaDeviceTest, GivesTheBitsOfTheHostDeviceWithQuantizedWeights) {
  const auto tokens = three_prompts(demo_weights());
  Host host(demo_weights());
  Cuda cuda(demo_weights(), {.slots = "50%"});
  cuda.fill(static_cast<uint32_t>(demo_weights().layers.size()) * 3);
  EXPECT_EQ(run(cuda.device(), tokens, kMixed, all_bits()), run(host.device(), tokens, kMixed, all_bits()));
}

// A layer's experts come through a ring that is shorter than the layer.
TEST_F(CudaDeviceTest, GivesTheBitsOfTheHostDeviceOnASmallCard) {
  const auto gpu = open_gpu();
  ASSERT_TRUE(gpu) << gpu.error().message();
  auto setup = cuda::Setup{.slots = "0"};
  const auto roomy = make_vram_plan(demo_weights(), *settings_of(setup), kContext, *gpu);
  ASSERT_TRUE(roomy) << roomy.error().message();
  const MemoryPlan& memory = roomy->memory;
  setup.vram_budget = gpu->total_bytes - gpu->free_bytes + memory.total_bytes() -
                      memory.item("staging").bytes + 40 * memory.slot_bytes;
  const auto small = make_vram_plan(demo_weights(), *settings_of(setup), kContext, *gpu);
  ASSERT_TRUE(small) << small.error().message();
  ASSERT_GT(small->limits.batches, small->ring_batches);
  const std::vector<Tokens> tokens = {made_up_tokens(demo_weights(), 40, 4)};
  const Script script = {{{0, 38}}, {{0, 1}}};
  Host host(demo_weights());
  Cuda cuda(demo_weights(), setup);
  EXPECT_EQ(run(cuda.device(), tokens, script, all_bits()), run(host.device(), tokens, script, all_bits()));
}

TEST_F(CudaDeviceTest, ChoosesOnTheDeviceWhatTheHostWouldChoose) {
  const auto tokens = three_prompts(tiny_weights());
  Host host(tiny_weights());
  Cuda cuda(tiny_weights());
  for (const model::SamplingParams& sampling :
       {model::SamplingParams{.temperature = 0},
        model::SamplingParams{.temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .seed = 3}}) {
    EXPECT_EQ(run(cuda.device(), tokens, kMixed, sampling), run(host.device(), tokens, kMixed, sampling));
  }
}

// One sequence that is masked, in windows with others that are not; also in windows that are graphs.
TEST_F(CudaDeviceTest, ChoosesWhatMasksAllowAndTheOthersAsEver) {
  const auto tokens = three_prompts(tiny_weights());
  std::vector<uint32_t> mask(model::mask_words(tiny_weights().config.vocab));
  const Script script(kMixed.begin(), kMixed.begin() + 6);
  Host host(tiny_weights());
  Cuda cuda(tiny_weights());
  for (const model::SamplingParams& sampling :
       {model::SamplingParams{.temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .seed = 3},
        model::SamplingParams{.temperature = 1.0f, .top_k = 0, .seed = 7}}) {  // sampled on the host
    const auto free = run(host.device(), tokens, script, sampling);
    const auto masks = [&](uint32_t sequence, uint32_t read) {
      if (sequence != 1) return std::span<const uint32_t>();
      std::ranges::fill(mask, 0);
      mask[read % (tiny_weights().config.vocab / 32)] = 5;  // another one for each token
      return std::span<const uint32_t>(mask);
    };
    const auto expected = run(host.device(), tokens, script, sampling, masks);
    EXPECT_EQ(run(cuda.device(), tokens, script, sampling, masks), expected);
    EXPECT_NE(expected, free);
    EXPECT_EQ(expected[3][0], free[3][0]) << "sequence 0";
  }
}

TEST_F(CudaDeviceTest, SaysTheSameWhateverIsResidentAndWhoComputesTheMisses) {
  const auto tokens = three_prompts(tiny_weights());
  std::vector<std::vector<Said>> expected;
  {
    Cuda cuda(tiny_weights(), {.slots = "0"});
    expected = run(cuda.device(), tokens, kMixed, all_bits());
    const DispatchCounters& counters = cuda.device().dispatch_counters();
    EXPECT_EQ(counters.hits.load(), 0U);
    EXPECT_EQ(counters.fallbacks.load(), counters.misses.load()) << "nobody is attached";
    EXPECT_GT(counters.copies.load(), 0U);
  }
  const auto all =
      static_cast<uint32_t>(tiny_weights().layers.size()) * tiny_weights().layers[0].moe.experts.count;
  {
    Cuda cuda(tiny_weights(), {.slots = "100%"});
    cuda.fill(all);
    EXPECT_EQ(run(cuda.device(), tokens, kMixed, all_bits()), expected) << "all resident";
    EXPECT_EQ(cuda.device().dispatch_counters().misses.load(), 0U);
    EXPECT_GT(cuda.device().dispatch_counters().hits.load(), 0U);
  }
  Cuda cuda(tiny_weights());
  const auto layers = experts_of(tiny_weights());
  ThreadWorker first(cuda.workers(), "cpu-expert-worker-0", layers),
      second(cuda.workers(), "cpu-expert-worker-1", layers, 2);
  cuda.fill(all / 4);
  EXPECT_EQ(run(cuda.device(), tokens, kMixed, all_bits()), expected) << "two workers, a quarter resident";
  EXPECT_EQ(cuda.device().dispatch_counters().fallbacks.load(), 0U);
}

Setup setup_with(const std::string& numerics) {
  return {.slots = "0", .chunk = 140, .numerics = numerics, .context = 160};
}

// The chunked form (numerics: fast): a prompt of two chunks and a tail, and a few generated tokens behind it.
class FastCudaDeviceTest : public CudaDeviceTest {
 protected:
  static constexpr uint32_t kPrompt = 140, kAll = 142;
  using Answers = std::vector<std::vector<Said>>;

  void SetUp() override {
    if (!can_chunk_delta_net(32)) GTEST_SKIP() << "needs sm_80";
  }
  static Script script(const std::vector<Part>& cuts) {
    Script windows;
    for (const Part& part : cuts) windows.push_back({part});
    for (uint32_t i = kPrompt; i < kAll; ++i) windows.push_back({{0, 1}});
    return windows;
  }
  // What is said from the end of the prompt on.
  static Answers answers(Device& device, const model::ModelWeights& weights, const std::vector<Part>& cuts) {
    Answers all = run(device, {made_up_tokens(weights, kAll, 5)}, script(cuts), all_bits());
    all.erase(all.begin(), all.end() - (kAll - kPrompt + 1));
    all.front().at(0).row = 0;  // it depends on the cuts
    return all;
  }
  static void expect_near(const Answers& actual, const Answers& expected, float difference_max) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const auto &top = actual[i].at(0).top, &expected_top = expected[i].at(0).top;
      ASSERT_EQ(top.at(0).first, expected_top.at(0).first) << "the best token after window " << i;
      for (const auto& [id, logprob] : top) {
        const auto same = std::ranges::find(expected_top, id, &std::pair<int32_t, float>::first);
        if (same == expected_top.end()) continue;
        EXPECT_NEAR(logprob, same->second, difference_max) << "token " << id;
      }
    }
  }
};

// Float weights: under quantized ones a difference in the last bit may round an activation to the next of its
// 8 bits, or choose another expert, and what remains says nothing about the chunks.
TEST_F(FastCudaDeviceTest, IsNearTheHostDeviceHoweverAPromptIsCutAtItsMultiple) {
  Host host(tiny_weights(), kPrompt, 160);
  const Answers expected = answers(host.device(), tiny_weights(), {{0, kPrompt}});
  Cuda cuda(tiny_weights(), setup_with("fast"));
  EXPECT_EQ(cuda.device().prompt_multiple(), kDeltaChunk);
  const Answers actual = answers(cuda.device(), tiny_weights(), {{0, kPrompt, {{64, 0}}}});
  expect_near(actual, expected, 1e-4f);
  EXPECT_NE(actual, expected) << "was it the recurrence after all?";
  EXPECT_EQ(answers(cuda.device(), tiny_weights(), {{0, 64, {{64, 1}}}, {0, 76}}), actual);
  EXPECT_TRUE(kept_in(cuda.device(), 0, 64) == kept_in(cuda.device(), 1, 64))
      << "a state within the window, and at the end of one";
}

TEST_F(FastCudaDeviceTest, IsNotThereUnlessAskedFor) {
  Cuda cuda(tiny_weights(), setup_with("reproducible"));
  EXPECT_EQ(cuda.device().prompt_multiple(), 1U);
}

TEST_F(CudaDeviceTest, SaysWhichExpertsTheRowsOfAWindowUsed) {
  const Tokens tokens = made_up_tokens(tiny_weights(), 12, 4);
  const auto routed = [&](Device& device) {
    const SequenceId id = device.open_sequence().value();
    std::vector<std::vector<uint16_t>> windows;
    for (const auto& [first, count] : {std::pair<std::size_t, std::size_t>{0, 7}, {7, 1}, {8, 4}}) {
      std::vector<DeviceRow> rows;
      for (std::size_t i = 0; i < count; ++i)
        rows.push_back({.sequence = id, .token = tokens[first + i], .is_prompt = true, .sample = {}});
      std::vector<RowChoice> choices;
      EXPECT_TRUE(device.run_window(rows, choices).ok());
      EXPECT_EQ(device.routed().size(),
                count * tiny_weights().config.layers * tiny_weights().config.experts_used);
      windows.emplace_back(device.routed().begin(), device.routed().end());
    }
    return windows;
  };
  Host host(tiny_weights());
  Cuda cuda(tiny_weights(), {.slots = "50%"});
  EXPECT_EQ(routed(cuda.device()), routed(host.device()));
}

TEST_F(CudaDeviceTest, TakesTheMemoryOfThePlanAndNoMore) {
  const auto before = open_gpu();
  ASSERT_TRUE(before) << before.error().message();
  const Cuda cuda(demo_weights(), {.slots = "50%"});
  const auto after = open_gpu();
  ASSERT_TRUE(after);
  const uint64_t taken = before->free_bytes - after->free_bytes, planned = cuda.plan().memory.total_bytes();
  EXPECT_GE(taken, planned);
  EXPECT_LE(taken, planned + (uint64_t{32} << 20)) << "what a GPU's allocator rounds up";
}

TEST_F(CudaDeviceTest, KeepsStatesThatTheHostDeviceGoesOnWith) {
  const Tokens tokens = made_up_tokens(tiny_weights(), 24, 9);
  constexpr uint32_t kKept = 13;  // in the middle of a block
  Host host(tiny_weights());
  Cuda cuda(tiny_weights());
  const StateLayout& layout = cuda.device().state_layout();
  ASSERT_EQ(layout.hash(), host.device().state_layout().hash());
  const SequenceId on_host = host.device().open_sequence().value();
  const SequenceId on_cuda = cuda.device().open_sequence().value();
  const auto go_on = [&](Device& device, SequenceId id, uint32_t begin) {
    return said({state_tests::feed(device, id, tokens, begin, 24, all_bits(), 20)});
  };
  state_tests::feed(host.device(), on_host, tokens, 0, kKept, all_bits(), 20);
  state_tests::feed(cuda.device(), on_cuda, tokens, 0, kKept, all_bits(), 20);
  const auto of_host = state_tests::take_out(host.device(), on_host, kKept);
  const auto of_cuda = state_tests::take_out(cuda.device(), on_cuda, kKept, 1);
  EXPECT_TRUE(counted(layout, of_host.fixed, kKept) == counted(layout, of_cuda.fixed, kKept));
  EXPECT_TRUE(of_host.pages == of_cuda.pages);
  {
    // Asked for with the window that ends there.
    const SequenceId again = cuda.device().open_sequence().value();
    std::vector<DeviceRow> rows;
    for (uint32_t i = 0; i < kKept; ++i)
      rows.push_back({.sequence = again, .token = tokens[i], .is_prompt = true, .sample = {}});
    rows.back().capture = 0;
    std::vector<RowChoice> choices;
    ASSERT_TRUE(cuda.device().run_window(rows, choices).ok());
    EXPECT_TRUE(kept_in(cuda.device(), 0, kKept) == counted(layout, of_cuda.fixed, kKept));
    cuda.device().close_sequence(again);
  }
  const auto expected = go_on(host.device(), on_host, kKept);
  EXPECT_EQ(go_on(cuda.device(), on_cuda, kKept), expected);

  cuda.device().restore(on_cuda, 1, kKept);
  EXPECT_EQ(go_on(cuda.device(), on_cuda, kKept), expected) << "rewound";
  const SequenceId copy = cuda.device().open_sequence().value();
  cuda.device().copy_pages(on_cuda, copy, kKept);
  cuda.device().restore(copy, 1, kKept);
  EXPECT_EQ(go_on(cuda.device(), copy, kKept), expected) << "copied";
  const SequenceId other = cuda.device().open_sequence().value();
  state_tests::bring_in(cuda.device(), other, of_host, 0);
  EXPECT_EQ(go_on(cuda.device(), other, kKept), expected) << "from the host device";
}

// Two sequences, captured at several places of a window that copies experts, at the ends of blocks and of
// windows; then in a window whose shape is a graph.
const Script kCaptures = {
    {{0, 3}},
    {{1, 7, {{1, 0}, {4, 1}, {6, 2}, {7, 3}}}, {0, 9, {{1, 4}, {8, 5}}}},
    {{0, 1}, {1, 2}},
    {{0, 1}, {1, 2}},
    {{0, 1}, {1, 2, {{1, 6}}}},
};
// By slot: how many tokens the states hold.
constexpr std::array<uint32_t, kSlots> kCaptured = {1, 4, 6, 7, 4, 11, 12};

using Kept = std::vector<std::vector<std::byte>>;
Kept captured(Device& device) {
  Kept kept;
  for (uint32_t slot = 0; slot < kSlots; ++slot) kept.push_back(kept_in(device, slot, kCaptured[slot]));
  return kept;
}

void expect_same(const Kept& actual, const Kept& expected, const StateLayout& layout) {
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    for (const StateLayout::Part& part : layout.fixed_parts()) {
      const auto of = [&](const Kept& kept) {
        return std::span(kept[slot]).subspan(part.offset, part.bytes);
      };
      EXPECT_TRUE(std::ranges::equal(of(actual), of(expected))) << part.name << " in slot " << slot;
    }
  }
}

TEST_F(CudaDeviceTest, CapturesWithinAWindowWhatTheHostDeviceDoes) {
  const std::vector<Tokens> tokens = {made_up_tokens(tiny_weights(), 15, 6),
                                      made_up_tokens(tiny_weights(), 13, 7)};
  Host host(tiny_weights());
  Cuda cuda(tiny_weights(), {.stream_rows_min = 12});
  ASSERT_TRUE(cuda.device().captures_within_windows());
  EXPECT_EQ(run(cuda.device(), tokens, kCaptures, all_bits()),
            run(host.device(), tokens, kCaptures, all_bits()));
  expect_same(captured(cuda.device()), captured(host.device()), cuda.device().state_layout());
}

// A page and some tokens; the windows are small enough for a graph, which they must not become.
TEST_F(CudaDeviceTest, ReadsOnWhilePagesAreBroughtBack) {
  const Tokens tokens = made_up_tokens(tiny_weights(), 70, 9);
  constexpr uint32_t kKept = 67;
  const auto check = [&](Device& device) {
    const SequenceId id = device.open_sequence().value();
    state_tests::feed(device, id, tokens, 0, kKept, all_bits(), 20);
    const auto state = state_tests::take_out(device, id, kKept);
    const auto expected = said({state_tests::feed(device, id, tokens, kKept, 70, all_bits(), 20)});
    for (int again = 0; again < 2; ++again) {
      const SequenceId other = device.open_sequence().value();
      EXPECT_EQ(said({state_tests::bring_in_under_a_window(device, other, state, tokens, all_bits())}),
                expected)
          << device.type();
      device.close_sequence(other);
    }
  };
  check(Host(tiny_weights(), 40, 80).device());
  check(Cuda(tiny_weights(), {.context = 80}).device());
}

// What pages hold depends on the format, what tokens follow does not depend on where they were.
TEST_F(CudaDeviceTest, KeepsStatesInEveryFormat) {
  const Tokens tokens = made_up_tokens(tiny_weights(), 22, 4);
  constexpr uint32_t kKept = 18;  // within the only window
  std::vector<uint64_t> hashes;
  for (const char* kv : {"float16", "int8"}) {
    Cuda cuda(tiny_weights(), {.kv = kv});
    hashes.push_back(cuda.device().state_layout().hash());
    const SequenceId id = cuda.device().open_sequence().value();
    std::vector<DeviceRow> rows;
    for (const int32_t token : tokens)
      rows.push_back({.sequence = id, .token = token, .is_prompt = true, .sample = {}});
    rows[kKept - 1].capture = 0;
    const model::SamplingParams sampling = all_bits();
    rows.back().sample = {.params = &sampling, .position = tokens.size(), .prompt = {}, .generated = {}};
    std::vector<RowChoice> choices;
    ASSERT_TRUE(cuda.device().run_window(rows, choices).ok());
    choices.at(0).row = tokens.size() - kKept - 1;
    const auto expected = said(choices);
    const auto state = state_tests::take_out_captured(cuda.device(), id, kKept);
    const SequenceId other = cuda.device().open_sequence().value();
    state_tests::bring_in(cuda.device(), other, state);
    EXPECT_EQ(said({state_tests::feed(cuda.device(), other, tokens, kKept, tokens.size(), all_bits(), 40)}),
              expected)
        << kv;
  }
  EXPECT_NE(hashes[0], hashes[1]);
}

TEST_F(CudaDeviceTest, RefusesWindowsThatMakeNoSense) {
  Cuda cuda(tiny_weights());
  const SequenceId id = cuda.device().open_sequence().value();
  std::vector<RowChoice> choices;
  const DeviceRow bad_token{.sequence = id,
                            .token = static_cast<int32_t>(tiny_weights().config.vocab),
                            .is_prompt = true,
                            .sample = {}};
  EXPECT_EQ(cuda.device().run_window({&bad_token, 1}, choices).code(), Code::kInvalidArgument);
  const std::vector<DeviceRow> too_many(50, {.sequence = id, .token = 1, .is_prompt = true, .sample = {}});
  EXPECT_EQ(cuda.device().run_window(too_many, choices).code(), Code::kInvalidArgument);
  for (uint32_t i = 1; i < kSequences; ++i) EXPECT_TRUE(cuda.device().open_sequence().has_value());
  EXPECT_EQ(cuda.device().open_sequence().error().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
