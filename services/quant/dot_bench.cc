// Products by type and number of tokens: bytes of weights per second on one core. 4096 rows of 2560 columns
// do not fit a core's caches (a small matrix with --benchmark_filter=Cached shows what the instructions alone
// allow).
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "services/quant/kernels.h"
#include "services/quant/quant.h"

namespace strata::quant {
namespace {

constexpr uint32_t kCols = 2560;

void product(benchmark::State& state, const Kernels& variant, TensorType type, uint32_t rows) {
  const auto& info = gguf::tensor_type_info(type);
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const std::size_t row_bytes = std::size_t{kCols} / info.block_values * info.block_bytes;
  const std::vector<std::byte> weights(rows * row_bytes, std::byte{0x21});
  const std::vector<float> input(std::size_t{tokens} * kCols, 0.5f);
  std::vector<float> output(std::size_t{tokens} * rows);
  Activations x(input.data(), tokens, kCols, kCols);
  x.ensure_q8();
  std::vector<Q8Row> q8;
  std::vector<const float*> f32;
  std::vector<float*> y;
  for (uint32_t t = 0; t < tokens; ++t) {
    q8.push_back(x.q8(t));
    f32.push_back(x.f32(t));
    y.push_back(output.data() + std::size_t{t} * rows);
  }
  const ProductArgs args{.weights = weights.data(),
                         .row_bytes = row_bytes,
                         .cols = kCols,
                         .row_end = rows,
                         .tokens = tokens,
                         .q8 = q8.data(),
                         .f32 = f32.data(),
                         .y = y.data()};
  const TypeKernels& kernel = variant.of(type);
  for (auto _ : state) {
    (kernel.product_q8 != nullptr ? kernel.product_q8 : kernel.product_f32)(args);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(weights.size()));
}

void quantize(benchmark::State& state, const Kernels& variant) {
  std::vector<float> input(kCols);
  for (uint32_t i = 0; i < kCols; ++i) input[i] = static_cast<float>(i % 97) - 48.0f;
  std::vector<int8_t> q(kCols);
  std::vector<float> d(kCols / 32);
  std::vector<int32_t> sum(kCols / 32);
  for (auto _ : state) {
    variant.floats->quantize_q8(input.data(), kCols, q.data(), d.data(), sum.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kCols * sizeof(float)));
}

void silu(benchmark::State& state, const Kernels& variant) {
  std::vector<float> gate(kCols, -1.5f), up(kCols, 2.0f), out(kCols);
  for (auto _ : state) {
    variant.floats->silu_multiply(gate.data(), up.data(), out.data(), kCols);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kCols);
}

void register_all() {
  for (const Kernels& variant : available_kernels()) {
    for (uint32_t id = 0; id < kTensorTypeIds; ++id) {
      const auto type = static_cast<TensorType>(id);
      if (!variant.of(type).supported()) continue;
      for (const auto& [place, rows] : {std::pair{"Memory", 4096u}, std::pair{"Cached", 64u}}) {
        const auto name = fmt::format("{}/{}/{}", place, variant.name, gguf::tensor_type_info(type).name);
        benchmark::RegisterBenchmark(
            name.c_str(), [&variant, type, rows](benchmark::State& s) { product(s, variant, type, rows); })
            ->Arg(1)
            ->Arg(4)
            ->Arg(16);
      }
    }
    benchmark::RegisterBenchmark(fmt::format("Quantize/{}", variant.name).c_str(),
                                 [&variant](benchmark::State& s) { quantize(s, variant); });
    benchmark::RegisterBenchmark(fmt::format("SiluMultiply/{}", variant.name).c_str(),
                                 [&variant](benchmark::State& s) { silu(s, variant); });
  }
}

}  // namespace
}  // namespace strata::quant

int main(int argc, char** argv) {
  strata::quant::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
