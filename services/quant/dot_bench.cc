// Products by type, kernel set, number of tokens and of threads, beside plain reading of the same bytes in
// the same minute: what matters is the ratio, machines differ and are noisy. Method and table:
// docs/performance.md.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/quant/kernels.h"
#include "services/quant/quant.h"
#include "services/quant/test_inputs.h"
#include "tests/support/bench_support.h"

namespace strata::quant {
namespace {

constexpr uint32_t kCols = 2560;
constexpr std::size_t kMiB = std::size_t{1} << 20;
// Many tokens are bound by computing on one thread: a matrix of this size says the same in less time.
constexpr uint32_t kManyTokens = 16;
constexpr std::size_t kManyTokensBytes = 64 * kMiB;
constexpr double kSecondsMin = 0.3,
                 kSecondsMax = 3.0;  // of one benchmark, reading included; checked between passes
// Kernels too slow to notice the memory get as many rows as take this long.
constexpr double kPassSeconds = 1.0;
constexpr std::size_t kProbeBytes = 4 * kMiB;
constexpr uint32_t kRowsAligned = 16;  // threads begin at multiples of it

struct Options {
  std::size_t bytes = 1024 * kMiB;
  std::vector<uint32_t> threads = {1};
  std::vector<uint32_t> tokens;      // empty: 1, 4, 16, and 64 for the fastest kernels
  std::vector<std::string> types;    // empty: all
  std::vector<std::string> kernels;  // empty: all
  uint32_t repetitions = 4;
};

// One line of the table at the end.
struct Line {
  std::string_view type, kernels;
  uint32_t tokens = 0, threads = 0;
  double bytes_per_second = 0, reading = 0, weights_per_second = 0;
};

bool named(const std::vector<std::string>& names, std::string_view name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

class DotBench {
 public:
  explicit DotBench(Options options)
      : options_(std::move(options)),
        buffer_(options_.bytes),
        team_(*std::max_element(options_.threads.begin(), options_.threads.end())) {}

  void register_all() {
    for (uint32_t id = 0; id < kTensorTypeIds; ++id) {
      const auto type = static_cast<TensorType>(id);
      for (const Kernels& variant : available_kernels()) {
        if (!variant.of(type).supported() || !named(options_.kernels, variant.name)) continue;
        if (!named(options_.types, gguf::tensor_type_info(type).name)) continue;
        for (const uint32_t threads : options_.threads) {
          for (const uint32_t tokens : tokens_for(variant)) add(type, variant, tokens, threads);
        }
      }
    }
  }

  void print_table() const {
    fmt::print("\n{} MiB in huge pages\n", bench::huge_page_bytes() / kMiB);
    fmt::print("{:8} {:12} {:>6} {:>7} {:>8} {:>8} {:>7} {:>12} {:>12}\n", "type", "kernels", "tokens",
               "threads", "GB/s", "reading", "ratio", "G weights/s", "G mul-add/s");
    for (const Line& line : lines_) {
      fmt::print("{:8} {:12} {:6} {:7} {:8.2f} {:8.2f} {:7.3f} {:12.2f} {:12.1f}\n", line.type, line.kernels,
                 line.tokens, line.threads, line.bytes_per_second * 1e-9, line.reading * 1e-9,
                 line.bytes_per_second / line.reading, line.weights_per_second * 1e-9,
                 line.weights_per_second * line.tokens * 1e-9);
    }
  }

 private:
  std::vector<uint32_t> tokens_for(const Kernels& variant) const {
    if (!options_.tokens.empty()) return options_.tokens;
    if (variant.name == available_kernels().back().name) return {1, 4, 16, 64};
    return {1, 4, 16};
  }

  void add(TensorType type, const Kernels& variant, uint32_t tokens, uint32_t threads) {
    const auto name = fmt::format("Product/{}/{}/tokens:{}/threads:{}", gguf::tensor_type_info(type).name,
                                  variant.name, tokens, threads);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [this, type, &variant, tokens, threads](benchmark::State& state) {
                                   product(state, type, variant, tokens, threads);
                                 })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }

  static uint32_t rows_of(std::size_t bytes, std::size_t row_bytes) {
    return static_cast<uint32_t>(bytes / row_bytes) / kRowsAligned * kRowsAligned;
  }

  // Fills the buffer with rows of this type: 1 MiB of random blocks, again and again (what the values are
  // does not matter, that every byte is a memory access of its own does). By all threads, each its part.
  void fill(TensorType type, std::size_t row_bytes) {
    if (filled_ == type) return;
    const auto rows = static_cast<uint32_t>(kMiB / row_bytes);
    tests::Generator random(static_cast<uint64_t>(type));
    const std::vector<std::byte> tile = tests::weights(random, type, rows, kCols);
    const std::size_t tiles = buffer_.size() / tile.size();
    team_.run(team_.size(), [&](uint32_t thread) {
      for (std::size_t i = tiles * thread / team_.size(); i < tiles * (thread + 1) / team_.size(); ++i)
        std::memcpy(buffer_.data() + i * tile.size(), tile.data(), tile.size());
    });
    filled_ = type;
    filled_rows_ = static_cast<uint32_t>(tiles) * rows;
  }

  void product(benchmark::State& state, TensorType type, const Kernels& variant, uint32_t tokens,
               uint32_t threads) {
    const auto& info = gguf::tensor_type_info(type);
    const std::size_t row_bytes = std::size_t{kCols} / info.block_values * info.block_bytes;
    fill(type, row_bytes);
    uint32_t rows = rows_of(filled_rows_ * row_bytes, row_bytes);
    if (tokens >= kManyTokens && threads == 1) rows = std::min(rows, rows_of(kManyTokensBytes, row_bytes));
    const auto first_row = [&](uint32_t thread) {
      return static_cast<uint32_t>(uint64_t{rows / kRowsAligned} * thread / threads) * kRowsAligned;
    };

    tests::Generator random(tokens);
    const std::vector<float> input = tests::activations(random, std::size_t{tokens} * kCols);
    std::vector<float> output(std::size_t{tokens} * rows);
    const TypeKernels& kernel = variant.of(type);
    const std::function<void(uint32_t)> multiply = [&](uint32_t thread) {
      // Each thread quantizes for itself: a thousandth of the work, and no second barrier.
      std::vector<std::byte> stored(tokens * q8_row_bytes(kCols));
      std::vector<Q8Row> q8;
      std::vector<const float*> f32;
      std::vector<float*> y;
      for (uint32_t t = 0; t < tokens; ++t) {
        f32.push_back(input.data() + std::size_t{t} * kCols);
        y.push_back(output.data() + std::size_t{t} * rows);
        std::byte* at = stored.data() + t * q8_row_bytes(kCols);
        q8.push_back(q8_row_view(at, kCols));
        if (kernel.product_q8 == nullptr) continue;
        auto* q = reinterpret_cast<int8_t*>(at);
        auto* d = reinterpret_cast<float*>(at + kCols);
        variant.floats->quantize_q8(f32.back(), kCols, q, d,
                                    reinterpret_cast<int32_t*>(d + kCols / kActivationBlock));
      }
      const ProductArgs args{.weights = buffer_.data(),
                             .row_bytes = row_bytes,
                             .cols = kCols,
                             .row_begin = first_row(thread),
                             .row_end = first_row(thread + 1),
                             .tokens = tokens,
                             .q8 = q8.data(),
                             .f32 = f32.data(),
                             .y = y.data(),
                             .next = {}};
      (kernel.product_q8 != nullptr ? kernel.product_q8 : kernel.product_f32)(args);
    };
    const std::function<void(uint32_t)> read = [&](uint32_t thread) {
      constexpr std::size_t kWord = 32;
      const std::size_t begin = first_row(thread) * row_bytes / kWord * kWord;
      const std::size_t end = first_row(thread + 1) * row_bytes / kWord * kWord;
      benchmark::DoNotOptimize(bench::read_all(buffer_.data() + begin, end - begin));
    };

    const uint32_t rows_all = std::exchange(rows, std::min(rows, rows_of(kProbeBytes, row_bytes)));
    const double fitting = rows * kPassSeconds / team_.run(threads, multiply);
    rows = static_cast<uint32_t>(std::min<double>(rows_all, fitting)) / kRowsAligned * kRowsAligned;
    rows = std::max(rows, kRowsAligned);
    double product_s = 0, read_s = 0, spent_s = 0;
    for (auto _ : state) {
      for (uint32_t i = 0; spent_s < kSecondsMax && (i < options_.repetitions || spent_s < kSecondsMin);
           ++i) {
        const double r = team_.run(threads, read), p = team_.run(threads, multiply);
        read_s = i == 0 ? r : std::min(read_s, r);
        product_s = i == 0 ? p : std::min(product_s, p);
        spent_s += r + p;
      }
      state.SetIterationTime(product_s);
    }
    const double bytes = static_cast<double>(row_bytes) * rows;
    const Line line{.type = info.name,
                    .kernels = variant.name,
                    .tokens = tokens,
                    .threads = threads,
                    .bytes_per_second = bytes / product_s,
                    .reading = bytes / read_s,
                    .weights_per_second = static_cast<double>(kCols) * rows / product_s};
    lines_.push_back(line);
    state.SetLabel(fmt::format("{:.3f} of reading", line.bytes_per_second / line.reading));
    state.counters["bytes"] = bytes;
    state.counters["bytes_per_second"] = line.bytes_per_second;
    state.counters["reading_bytes_per_second"] = line.reading;
    state.counters["ratio_to_reading"] = line.bytes_per_second / line.reading;
    state.counters["weights_per_second"] = line.weights_per_second;
    state.counters["multiply_adds_per_second"] = line.weights_per_second * tokens;
  }

  const Options options_;
  bench::HugeBuffer buffer_;
  bench::PinnedTeam team_;
  std::optional<TensorType> filled_;
  uint32_t filled_rows_ = 0;
  std::vector<Line> lines_;
};

void quantize(benchmark::State& state, const Kernels& variant) {
  tests::Generator random(1);
  const std::vector<float> input = tests::activations(random, kCols);
  std::vector<int8_t> q(kCols);
  std::vector<float> d(kCols / kActivationBlock);
  std::vector<int32_t> sum(kCols / kActivationBlock);
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

void register_float_kernels(const Options& options) {
  for (const Kernels& variant : available_kernels()) {
    if (!named(options.kernels, variant.name)) continue;
    benchmark::RegisterBenchmark(fmt::format("Quantize/{}", variant.name).c_str(),
                                 [&variant](benchmark::State& s) { quantize(s, variant); });
    benchmark::RegisterBenchmark(fmt::format("SiluMultiply/{}", variant.name).c_str(),
                                 [&variant](benchmark::State& s) { silu(s, variant); });
  }
}

// --- The command line

constexpr std::string_view kUsage =
    R"(dot_bench [--size=1GiB] [--threads=1,all] [--tokens=1,4,16,64] [--types=Q4_K,IQ2_XS] [--kernels=avx2]
          [--repetitions=4] [--benchmark_out=FILE.json] [--benchmark_filter=REGEX] ...

  --size         weights of one product, at least 4MiB; more than the caches (16 tokens and more take 64 MiB of it, and slow
                 kernels what they can do in a second)
  --threads      counts of threads, each pinned to a physical core and with an equal range of rows; all = one per core
  --tokens       rows of activations; by default 1, 4 and 16, and 64 for the fastest kernels
  --types        names of tensor types; by default all that the kernels know
  --kernels      names of kernel sets; by default all that this CPU can run
  --repetitions  of each product and of plain reading, by turns; the best of each counts
)";

[[noreturn]] void usage_error(std::string_view argument) {
  fmt::print(stderr, "dot_bench: cannot use {}\n\n{}", argument, kUsage);
  std::exit(2);
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    parts.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return parts;
}

// A positive number in front of `unit`.
uint32_t count(std::string_view text, std::string_view argument, std::string_view unit = "") {
  uint32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || value == 0 ||
      std::string_view(stop, static_cast<std::size_t>(end - stop)) != unit)
    usage_error(argument);
  return value;
}

std::size_t size_bytes(std::string_view text, std::string_view argument) {
  for (const auto& [unit, bytes] :
       {std::pair{"KiB", kMiB >> 10}, std::pair{"MiB", kMiB}, std::pair{"GiB", kMiB << 10}}) {
    if (text.ends_with(unit)) return count(text, argument, unit) * bytes;
  }
  usage_error(argument);
}

// Takes the options of this program out of argv and leaves Google Benchmark's.
Options take_options(int* argc, char** argv) {
  Options options;
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = argv[i];
    const std::size_t equals = std::min(argument.find('='), argument.size());
    const std::string_view name = argument.substr(0, equals);
    const std::string_view value = argument.substr(std::min(equals + 1, argument.size()));
    if (name == "--size") {
      options.bytes = size_bytes(value, argument);
      if (options.bytes < kProbeBytes) usage_error(argument);
    } else if (name == "--threads") {
      options.threads.clear();
      for (const std::string& part : split(value))
        options.threads.push_back(part == "all" ? sys::allowed_core_count() : count(part, argument));
      if (options.threads.empty()) usage_error(argument);
    } else if (name == "--tokens") {
      for (const std::string& part : split(value)) options.tokens.push_back(count(part, argument));
      for (const uint32_t tokens : options.tokens) {
        if (tokens > kTokensPerCall) usage_error(argument);
      }
    } else if (name == "--types") {
      options.types = split(value);
    } else if (name == "--kernels") {
      options.kernels = split(value);
    } else if (name == "--repetitions") {
      options.repetitions = count(value, argument);
    } else {
      if (name == "--help") fmt::print("{}\n", kUsage);
      argv[kept++] = argv[i];
    }
  }
  *argc = kept;
  return options;
}

}  // namespace
}  // namespace strata::quant

int main(int argc, char** argv) {
  using namespace strata::quant;
  Options options = take_options(&argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("size_bytes", fmt::format("{}", options.bytes));
  register_float_kernels(options);
  DotBench bench(std::move(options));
  bench.register_all();
  benchmark::RunSpecifiedBenchmarks();
  bench.print_table();
  return 0;
}
