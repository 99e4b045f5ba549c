// Whole windows of a model on the cuda device, without a cluster: no misses, no other process. For profilers,
// and to tell what the kernels need from what everything around them costs.
//
//   cuda_window_bench --model=FILE [--slots=100%] [--kv=float16] [--chunk=4096] [--context=32768]
//   [--routing=mild] [--numerics=reproducible] [--masked=0]
//
// --masked=1: rows that decode may choose every third token only.
//
// FILE is a GGUF file; without one a synthetic model of four layers in the real shapes lies in /dev/shm
// meanwhile.

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <map>

#include "gpu-worker/cuda/device_harness.h"
#include "services/gguf/gguf_file.h"
#include "services/model/synthetic_routing.h"
#include "services/synthetic/model_file.h"
#include "services/synthetic/model_spec.h"

namespace strata::gpu_worker::cuda {
namespace {

std::map<std::string, std::string> flags = {
    {"model", ""},       {"slots", "100%"},    {"kv", "float16"},
    {"chunk", "4096"},   {"context", "32768"}, {"routing", "mild"},
    {"sequences", "16"}, {"budget", ""},       {"numerics", "reproducible"},
    {"masked", "0"}};

template <class T>
T must(Result<T> result, const char* what) {
  CHECK(result.has_value(), "{}: {}", what, result.error().message());
  return std::move(*result);
}

struct Subject {
  Subject() {
    if (flags["model"].empty()) {
      made_up_ = fmt::format("/dev/shm/strata-window-bench-{}.gguf", getpid());
      const auto request =
          must(synthetic::parse_model_spec("qwen3.8-flash-next:layers=4:types=Q2_K/Q4_0"), "model");
      must(synthetic::write_model_file(must(synthetic::plan_model(request), "model"),
                                       {.path = made_up_, .seed = 1, .threads = 8}),
           "model");
      flags["model"] = made_up_;
    }
    loaded = std::make_unique<model::ModelWeights>(
        must(model::load_model(must(gguf::GgufFile::open(flags["model"]), "model")), "model"));
    const model::ModelWeights& weights = *loaded;
    if (!made_up_.empty()) unlink(made_up_.c_str());
    const auto context = static_cast<uint32_t>(std::stoul(flags["context"]));
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"engine.sequences", flags["sequences"]},
                                            {"engine.context_tokens", flags["context"]},
                                            {"engine.prefill_chunk_tokens", flags["chunk"]},
                                            {"experts.slots", flags["slots"]},
                                            {"device.kv", flags["kv"]},
                                            {"numerics", flags["numerics"]},
                                            {"device.vram_budget", flags["budget"]},
                                            {"engine.synthetic_routing", flags["routing"]},
                                            {"cpu_experts.workers", "0"}}) {
      if (value.empty()) continue;
      const Status status = settings.find(name)->parse(value);
      CHECK(status.ok(), "{}: {}", name, status.message());
    }
    if (!flags["routing"].empty()) {
      model::RoutingShape shape{.experts = {}, .used = weights.config.experts_used};
      for (const auto& layer : weights.layers) shape.experts.push_back(layer.moe.experts.count);
      routing = must(model::make_synthetic_routing(
                         must(model::parse_synthetic_routing(flags["routing"]), "routing"), shape),
                     "routing");
    }
    harness = std::make_unique<DeviceHarness>(weights, settings, context, "windowbench", 4, routing.get());
    harness->fill(harness->plan().memory.slots);
  }

  std::string made_up_;
  config::Settings settings;
  std::unique_ptr<model::ModelWeights> loaded;
  std::unique_ptr<model::RoutingOverride> routing;
  std::unique_ptr<DeviceHarness> harness;
};

Subject& subject() {
  static Subject subject;
  return subject;
}

// Gives a sequence more tokens of a prompt; the last one wants a choice.
void read(Device& device, SequenceId id, uint32_t tokens, uint32_t chunk) {
  const model::SamplingParams greedy{.temperature = 0};
  std::vector<RowChoice> choices;
  for (uint32_t begin = 0; begin < tokens; begin += chunk) {
    std::vector<DeviceRow> rows;
    for (uint32_t i = begin; i < std::min(tokens, begin + chunk); ++i)
      rows.push_back(
          {.sequence = id, .token = static_cast<int32_t>(i % 1000), .is_prompt = true, .sample = {}});
    if (begin + chunk >= tokens)
      rows.back().sample = {.params = &greedy, .position = tokens, .prompt = {}, .generated = {}};
    CHECK(device.run_window(rows, choices).ok(), "window");
  }
}

void count_stages(benchmark::State& state, Device& device, double windows) {
  const StageSeconds seconds = device.take_stages();
  for (std::size_t i = 0; i < kStages; ++i) {
    if (seconds[i] > 0) state.counters[fmt::format("{}_ms", kStageNames[i])] = seconds[i] * 1e3 / windows;
  }
}

void decode(benchmark::State& state) {
  Device& device = subject().harness->device();
  const auto clients = static_cast<uint32_t>(state.range(0)), context = static_cast<uint32_t>(state.range(1));
  std::vector<SequenceId> ids;
  for (uint32_t i = 0; i < clients; ++i) {
    ids.push_back(must(device.open_sequence(), "sequence"));
    read(device, ids.back(), context, subject().harness->plan().memory.prefill_chunk_tokens);
  }
  const model::SamplingParams greedy{.temperature = 0};
  std::vector<uint32_t> mask;
  if (flags["masked"] == "1") {
    const uint32_t vocab = subject().loaded->config.vocab;
    mask.resize(model::mask_words(vocab));
    for (uint32_t token = 0; token < vocab; token += 3) mask[token / 32] |= 1u << token % 32;
  }
  std::vector<DeviceRow> rows;
  std::vector<RowChoice> choices;
  const auto window = [&] {
    rows.clear();
    for (uint32_t i = 0; i < clients; ++i) {
      const int32_t token = i < choices.size() ? choices[i].token.id : 7;
      rows.push_back(
          {.sequence = ids[i],
           .token = token,
           .is_prompt = false,
           .sample = {.params = &greedy, .position = 1, .prompt = {}, .generated = {}, .mask = mask}});
    }
    CHECK(device.run_window(rows, choices).ok(), "window");
  };
  for (int i = 0; i < 3; ++i) window();  // the shape's graph is made
  device.take_stages();
  for (auto _ : state) window();
  count_stages(state, device, static_cast<double>(state.iterations()));
  state.SetItemsProcessed(state.iterations() * clients);
  for (const SequenceId id : ids) device.close_sequence(id);
}
BENCHMARK(decode)
    ->Args({1, 16})
    ->Args({1, 1024})
    ->Args({1, 30000})
    ->Args({2, 16})
    ->Args({4, 16})
    ->Args({8, 16})
    ->Args({16, 16})
    ->Iterations(192)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void prompt(benchmark::State& state) {
  Device& device = subject().harness->device();
  const auto tokens = static_cast<uint32_t>(state.range(0));
  device.take_stages();
  for (auto _ : state) {
    const SequenceId id = must(device.open_sequence(), "sequence");
    read(device, id, tokens, subject().harness->plan().memory.prefill_chunk_tokens);
    device.close_sequence(id);
  }
  count_stages(state, device, static_cast<double>(state.iterations()));
  state.SetItemsProcessed(state.iterations() * tokens);
}
BENCHMARK(prompt)->Arg(128)->Arg(512)->Arg(2048)->Arg(8192)->Arg(30000)->Iterations(2)->UseRealTime()->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace strata::gpu_worker::cuda

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (equals == std::string::npos || !name.starts_with("--") ||
        !strata::gpu_worker::cuda::flags.contains(name.substr(2))) {
      fmt::print(stderr, "{}: unknown; the head of window_bench.cc has the options\n", argument);
      return 2;
    }
    strata::gpu_worker::cuda::flags[name.substr(2)] = argument.substr(equals + 1);
  }
  benchmark::RunSpecifiedBenchmarks();
}
