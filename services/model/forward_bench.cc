// Tokens per second of the demo model on one thread, with every expert computed from the mapped file.
//   STRATA_BENCH_MODEL names another model of the family, STRATA_BENCH_THREADS another number of threads.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "services/model/forward.h"
#include "services/model/sampling.h"

namespace strata::model {
namespace {

constexpr uint32_t kChunk = 256;

const ModelWeights& weights() {
  static const ModelWeights loaded = [] {
    const char* path = std::getenv("STRATA_BENCH_MODEL");
    auto file = gguf::GgufFile::open(path != nullptr ? path : "models/strata-demo.gguf");
    if (!file) {
      std::fprintf(stderr, "%s\n", file.error().message().c_str());
      std::exit(2);
    }
    auto model = load_model(*file);
    if (!model) {
      std::fprintf(stderr, "%s\n", model.error().message().c_str());
      std::exit(2);
    }
    return std::move(*model);
  }();
  return loaded;
}

uint32_t threads() {
  const char* value = std::getenv("STRATA_BENCH_THREADS");
  return value != nullptr ? static_cast<uint32_t>(std::atoi(value)) : 1;
}

void report_phases(benchmark::State& state, const PhaseSeconds& spent, double tokens) {
  const auto share = [&](const char* name, double seconds) { state.counters[name] = seconds * 1e6 / tokens; };
  share("us_mixers", spent.mixers);
  share("us_attention", spent.attention);
  share("us_delta_net", spent.delta_net);
  share("us_ngram", spent.ngram);
  share("us_route", spent.route);
  share("us_experts", spent.experts);
  share("us_head", spent.head);
}

// Windows of `range` rows of one sequence, the last with logits; the sequence starts again when it is full.
void run_windows(benchmark::State& state, uint32_t context_begin) {
  const auto rows_count = static_cast<uint32_t>(state.range(0));
  const auto numerics = quant::Numerics::kReproducible;
  Parallel parallel(threads());
  Forward forward(weights(), numerics, kChunk, parallel);
  LocalExperts experts(weights(), numerics);
  SequenceState sequence(weights().config, 4096);
  std::vector<float> logits(weights().config.vocab);
  int32_t next = 1;
  const auto window = [&](uint32_t count, bool want_logits) {
    std::vector<WindowRow> rows(count, {.sequence = &sequence});
    for (WindowRow& row : rows)
      row.token = next = (next * 37 + 11) % static_cast<int32_t>(weights().config.vocab);
    rows.back().want_logits = want_logits;
    const Status status = forward.run(rows, experts, logits);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  };
  const auto restart = [&] {
    sequence.reset();
    while (sequence.position() < context_begin) window(kChunk, false);
    forward.take_phases();
  };
  restart();
  PhaseSeconds spent;
  for (auto _ : state) {
    if (sequence.position() + rows_count > sequence.capacity()) {
      state.PauseTiming();
      restart();
      state.ResumeTiming();
    }
    window(rows_count, true);
  }
  spent = forward.take_phases();
  const double tokens = static_cast<double>(state.iterations()) * rows_count;
  state.SetItemsProcessed(static_cast<int64_t>(tokens));
  report_phases(state, spent, tokens);
}

void decode(benchmark::State& state) { run_windows(state, 512); }
void prefill(benchmark::State& state) { run_windows(state, 0); }

// One token from a vocabulary of the released model's size. Arguments: top_k (0: top_p has to look at all);
// of so many tokens a mask allows one (0: there is no mask).
void sample(benchmark::State& state) {
  std::vector<float> logits(248320);
  uint32_t bits = 1;
  for (float& logit : logits)
    logit = static_cast<float>((bits = bits * 1664525 + 1013904223) >> 16) * 0x1.8p-12f;
  Sampler sampler(static_cast<uint32_t>(logits.size()));
  const SamplingParams params{.top_k = static_cast<uint32_t>(state.range(0)), .top_p = 0.95f};
  std::vector<uint32_t> mask;
  if (const auto apart = static_cast<std::size_t>(state.range(1)); apart > 0) {
    mask.resize(mask_words(static_cast<uint32_t>(logits.size())));
    for (std::size_t id = 0; id < logits.size(); id += apart) mask[id / 32] |= 1U << id % 32;
  }
  uint64_t position = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sampler.sample(logits, params, position++, {}, {}, mask).id);
}

BENCHMARK(sample)->ArgsProduct({{20, 0}, {0, 1, 100, 10000}})->Unit(benchmark::kMillisecond);
BENCHMARK(decode)->Arg(1)->Arg(4)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(prefill)->Arg(kChunk)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace strata::model

BENCHMARK_MAIN();
