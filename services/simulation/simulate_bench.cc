// Routed tokens per minute and policy on one core, windows of one token, a look at each: the demo model's
// shape and that of a large one (48 layers of 512 experts, 10 used, a quarter of them resident).
#include <benchmark/benchmark.h>

#include "services/simulation/generate.h"
#include "services/simulation/replay.h"

namespace strata::simulation {
namespace {

void replay_tokens(benchmark::State& state, const char* policy_name, const char* shape) {
  const auto trace = generate(*parse_generate_spec(shape));
  const uint32_t experts = trace.layers * trace.experts;
  const residency::PolicyOptions options{
      .shape = {trace.layers, trace.experts}, .slots = experts / 4, .decay_tokens = 32};
  const ReplayOptions replay_options{.slots = experts / 4,
                                     .limits = {.exchanges_per_window = trace.layers / 2.0}};
  std::size_t tokens = 0;
  for (auto _ : state) {
    Replay replay(trace, std::move(*residency::make_policy(policy_name, options)), replay_options);
    replay.run(trace.conversations[0]);
    benchmark::DoNotOptimize(replay.result().decode_hits);
    tokens += trace.conversations[0].tokens.size();
  }
  state.counters["tokens_per_minute"] =
      benchmark::Counter(static_cast<double>(tokens) * 60, benchmark::Counter::kIsRate);
  state.counters["us_per_token"] = benchmark::Counter(
      static_cast<double>(tokens) * 1e-6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

constexpr const char* kDemo = "alternating,tokens=4000";
constexpr const char* kLarge = "alternating,layers=48,experts=512,used=10,tokens=600,switch=200";

void register_all() {
  for (const auto& [name, shape] : {std::pair{"demo", kDemo}, std::pair{"large", kLarge}}) {
    for (const std::string& policy : residency::policy_names()) {
      benchmark::RegisterBenchmark((std::string(name) + "/" + policy).c_str(), [policy, shape = shape](
                                                                                   benchmark::State& state) {
        replay_tokens(state, policy.c_str(), shape);
      })->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace
}  // namespace strata::simulation

int main(int argc, char** argv) {
  strata::simulation::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
