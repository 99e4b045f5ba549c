// One layer's missed experts, end to end: a client writes requests to a board as the gpu-worker does, the
// real threads serve it. Experts of the real size (hidden 2560, width 640) from a buffer far larger than any
// cache; none is read again before all others of its layer were. Options: usage() below.

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cpu-expert-worker/board_server.h"
#include "services/quant/test_inputs.h"
#include "tests/support/bench_support.h"

namespace strata::cpu_expert_worker {
namespace {

using Clock = std::chrono::steady_clock;
using quant::TensorType;

constexpr uint32_t kHidden = 2560;
constexpr uint32_t kWidth = 640;
constexpr uint32_t kExpertsPerLayer = 512;
constexpr uint32_t kTokensMax = 128;
constexpr uint32_t kExpertsMax = 32;    // of a request
constexpr uint32_t kMadeUpExperts = 8;  // with bytes of their own; the rest are copies: memory does not care

struct Types {
  TensorType gate_up, down;
  std::string name;
};

struct Options {
  std::vector<Types> types;
  std::vector<double> experts = {0.5, 1, 2, 5, 10};  // per layer, on average
  std::vector<uint32_t> tokens = {1};                // per expert
  std::vector<uint32_t> threads;                     // empty: all cores but one
  std::vector<SplitRule> splits = {SplitRule::kByCost};
  std::vector<uint32_t> unit_bytes = {CutRules{}.unit_bytes};
  std::vector<uint32_t> take_parts = {CutRules{}.take_parts};
  std::size_t bytes = std::size_t{2} << 30;
  double seconds = 1;
  bool yield = false;
};

int usage() {
  fmt::print(stderr,
             "usage: expert_bench [--types=GATE_UP/DOWN,...] [--experts=0.5,1,...] [--tokens=1,4,...]\n"
             "                    [--threads=1,15,...] [--split=cost,none,all] [--unit=BYTES,...] "
             "[--take=PARTS,...] "
             "[--size=MiB] [--seconds=S]\n"
             "                    [--wait=spin|yield] [Google Benchmark's options]\n");
  return 2;
}

// Layers of experts as they lie in a file: of each role all experts of a layer side by side.
class Model {
 public:
  Model(const Types& types, std::size_t bytes) : buffer_(bytes) {
    model::LayerExperts layer;
    layer.count = kExpertsPerLayer;
    layer.hidden = kHidden;
    layer.width = kWidth;
    const auto matrix = [](TensorType type, uint32_t rows, uint32_t cols, std::size_t& expert_bytes) {
      const gguf::TensorTypeInfo& info = gguf::tensor_type_info(type);
      const std::size_t row_bytes = cols / info.block_values * info.block_bytes;
      expert_bytes = rows * row_bytes;
      return quant::Matrix{.type = type, .rows = rows, .cols = cols, .data = nullptr, .row_bytes = row_bytes};
    };
    layer.gate = matrix(types.gate_up, kWidth, kHidden, layer.gate_expert_bytes);
    layer.up = matrix(types.gate_up, kWidth, kHidden, layer.up_expert_bytes);
    layer.down = matrix(types.down, kHidden, kWidth, layer.down_expert_bytes);
    expert_bytes_ = layer.gate_expert_bytes + layer.up_expert_bytes + layer.down_expert_bytes;
    // One layer at least, with fewer experts where the buffer is small.
    layer.count = static_cast<uint32_t>(std::min<std::size_t>(kExpertsPerLayer, bytes / expert_bytes_));
    CHECK(layer.count >= kExpertsMax, "--size is too small: {} experts", layer.count);
    quant::tests::Generator random(1);
    std::byte* at = buffer_.data();
    const auto place = [&](quant::Matrix& first, std::size_t expert_bytes) {
      first.data = at;
      const std::vector<std::byte> made_up =
          quant::tests::weights(random, first.type, kMadeUpExperts * first.rows, first.cols);
      for (uint32_t e = 0; e < layer.count; ++e, at += expert_bytes)
        std::memcpy(at, made_up.data() + e % kMadeUpExperts * expert_bytes, expert_bytes);
    };
    for (std::size_t left = bytes; left >= layer.count * expert_bytes_; left -= layer.count * expert_bytes_) {
      place(layer.gate, layer.gate_expert_bytes);
      place(layer.up, layer.up_expert_bytes);
      place(layer.down, layer.down_expert_bytes);
      layers_.push_back(layer);
    }
  }
  std::span<const model::LayerExperts> layers() const { return layers_; }
  std::size_t expert_bytes() const { return expert_bytes_; }
  const bench::HugeBuffer& buffer() const { return buffer_; }

 private:
  bench::HugeBuffer buffer_;
  std::vector<model::LayerExperts> layers_;
  std::size_t expert_bytes_ = 0;
};

// The gpu-worker's side of a board.
class Client {
 public:
  Client(shm::Board& board, std::span<const model::LayerExperts> layers, const shm::WaitPolicy& wait)
      : board_(board), wait_(wait) {
    std::mt19937 random(1);
    for (const model::LayerExperts& layer : layers) {
      auto& order = orders_.emplace_back(layer.count);
      std::iota(order.begin(), order.end(), uint16_t{0});
      std::shuffle(order.begin(), order.end(), random);
    }
    quant::tests::Generator values(2);
    for (uint32_t token = 0; token < kTokensMax; ++token)
      quant::quantize_q8(quant::tests::activations(values, kHidden), board_.activations(token));
    next_.resize(layers.size());
  }

  // The next `experts` experts of the layer, `tokens` tokens each; returns when their parts are there.
  void miss(uint32_t layer, uint32_t experts, uint32_t tokens) {
    chosen_.clear();
    for (uint32_t i = 0; i < experts; ++i) {
      chosen_.push_back(orders_[layer][next_[layer]]);
      next_[layer] = (next_[layer] + 1) % orders_[layer].size();
    }
    std::ranges::sort(chosen_);
    shm::BoardPair* pair = board_.pairs();
    for (const uint16_t expert : chosen_) {
      for (uint32_t token = 0; token < tokens; ++token)
        *pair++ = {.token = static_cast<uint16_t>(token), .expert = expert};
    }
    shm::BoardHeader& header = board_.header();
    header.request = {.ticket = ++ticket_, .layer = layer, .tokens = tokens, .pair_count = experts * tokens};
    uint32_t seen = header.done.seq.load(std::memory_order_acquire);
    header.work.ring();
    while (header.done_ticket.load(std::memory_order_acquire) < ticket_)
      seen = header.done.wait(seen, wait_, {});
  }

 private:
  shm::Board& board_;
  shm::WaitPolicy wait_;
  std::vector<std::vector<uint16_t>> orders_;  // (layers, experts)
  std::vector<std::size_t> next_;
  std::vector<uint16_t> chosen_;
  uint64_t ticket_ = 0;
};

const char* split_name(SplitRule rule) {
  return rule == SplitRule::kNone ? "none" : rule == SplitRule::kAll ? "all" : "cost";
}

struct Case {
  double experts = 1;
  uint32_t tokens = 1;
  uint32_t threads = 1;
  CutRules rules;
};

// Plain reading of the buffer by as many threads, the yardstick; bytes per second, best of three.
double read_speed(const bench::HugeBuffer& buffer, uint32_t wanted_threads) {
  const auto cpus = static_cast<uint32_t>(sys::cpus_by_preference().size());
  const uint32_t threads = std::min(wanted_threads, cpus);
  bench::PinnedTeam team(threads);
  double best = 0;
  const std::size_t share = buffer.size() / threads / 64 * 64;
  for (int i = 0; i < 3; ++i) {
    const double seconds = team.run(threads, [&](uint32_t thread) {
      benchmark::DoNotOptimize(bench::read_all(buffer.data() + thread * share, share));
    });
    best = std::max(best, static_cast<double>(share * threads) / seconds);
  }
  return best;
}

void layer_misses(benchmark::State& state, const Model& model, const Options& options, const Case& which,
                  double reading) {
  const std::vector<uint32_t> cpus = sys::cpus_by_preference();
  const bool enough = which.threads < cpus.size();
  const shm::WaitPolicy wait{.yield = options.yield || !enough, .park_after_us = 2000};
  auto board = shm::Board::create(
      shm::segment_name("bench000", "board", shm::random_instance_id()),
      {.hidden = kHidden, .tokens_max = kTokensMax, .pairs_max = kTokensMax * kExpertsMax});
  CHECK(board.has_value(), "{}", board.error().message());
  // The client has the first core, as the window loop has.
  BoardServerOptions server_options{
      .layers = model.layers(), .threads = which.threads, .wait = wait, .rules = which.rules};
  if (enough) server_options.cpus.assign(cpus.begin() + 1, cpus.begin() + 1 + which.threads);
  BoardServer server(server_options);
  std::atomic<bool> stopping{false};
  std::thread leader([&] {
    const Status served = server.serve(*board, [&] { return stopping.load(std::memory_order_relaxed); });
    CHECK(served.ok(), "{}", served.message());
  });
  std::vector<double> request_us;
  uint64_t layers = 0, experts = 0;
  double seconds = 0;
  std::thread client([&] {
    if (enough) CHECK(sys::pin_this_thread(cpus[0]).ok());
    Client asks(*board, model.layers(), wait);
    const auto run = [&](double how_long) {
      layers = experts = 0;
      request_us.clear();
      const Clock::time_point begin = Clock::now();
      for (Clock::time_point now = begin;
           (seconds = std::chrono::duration<double>(now - begin).count()) < how_long;) {
        // So many that the average comes out: 0.5 is one expert in every second layer.
        const auto count = static_cast<uint32_t>(std::floor(which.experts * static_cast<double>(layers + 1)) -
                                                 std::floor(which.experts * static_cast<double>(layers)));
        if (count > 0) asks.miss(static_cast<uint32_t>(layers % model.layers().size()), count, which.tokens);
        const Clock::time_point after = Clock::now();
        if (count > 0) request_us.push_back(std::chrono::duration<double, std::micro>(after - now).count());
        now = after;
        ++layers;
        experts += count;
      }
    };
    run(options.seconds / 5);  // warm-up
    run(options.seconds);
  });
  client.join();
  stopping = true;
  leader.join();
  for (auto _ : state) state.SetIterationTime(seconds / static_cast<double>(layers));
  if (request_us.empty()) return state.SkipWithError("no request was made in the time: --seconds");
  std::ranges::sort(request_us);
  const double bytes_per_second = static_cast<double>(experts * model.expert_bytes()) / seconds;
  state.counters["us_per_layer"] = seconds * 1e6 / static_cast<double>(layers);
  state.counters["request_median_us"] = request_us[request_us.size() / 2];
  state.counters["request_p99_us"] = request_us[request_us.size() * 99 / 100];
  state.counters["weights_GBps"] = bytes_per_second * 1e-9;
  state.counters["of_reading"] = bytes_per_second / reading;
  state.counters["reading_GBps"] = reading * 1e-9;
}

// ---- options

template <class Number>
bool number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0;
}

template <class Value, class Parse>
bool list(std::string_view text, std::vector<Value>& values, const Parse& parse) {
  values.clear();
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (!parse(text.substr(0, comma), values.emplace_back())) return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return !values.empty();
}

bool type_named(std::string_view name, TensorType& type) {
  for (const TensorType known : quant::tests::all_types()) {
    if (gguf::tensor_type_info(known).name != name) continue;
    type = known;
    return true;
  }
  return false;
}

bool types_named(std::string_view text, Types& types) {
  const std::size_t slash = text.find('/');
  types.name = text;
  return slash != std::string_view::npos && type_named(text.substr(0, slash), types.gate_up) &&
         type_named(text.substr(slash + 1), types.down);
}

bool split_named(std::string_view name, SplitRule& rule) {
  for (const SplitRule known : {SplitRule::kByCost, SplitRule::kNone, SplitRule::kAll}) {
    if (split_name(known) != name) continue;
    rule = known;
    return true;
  }
  return false;
}

bool take_option(std::string_view name, std::string_view value, Options& options) {
  const auto positive = [](std::string_view text, auto& into) { return number(text, into); };
  if (name == "types") return list(value, options.types, types_named);
  if (name == "experts") return list(value, options.experts, positive);
  if (name == "tokens") return list(value, options.tokens, positive);
  if (name == "threads") return list(value, options.threads, positive);
  if (name == "split") return list(value, options.splits, split_named);
  if (name == "unit") return list(value, options.unit_bytes, positive);
  if (name == "take") return list(value, options.take_parts, positive);
  if (name == "seconds") return number(value, options.seconds);
  if (name == "wait") {
    options.yield = value == "yield";
    return options.yield || value == "spin";
  }
  if (name == "size") {
    if (!number(value, options.bytes)) return false;
    options.bytes <<= 20;
    return true;
  }
  return false;
}

bool take_options(int& argc, char** argv, Options& options) {
  CHECK(list("Q2_0/Q2_0,Q2_K/Q4_0,IQ2_XS/IQ4_NL,Q4_K/Q5_1", options.types,
             [](std::string_view text, Types& types) {
               // What this build has.
               return types_named(text, types) || (types.name.clear(), true);
             }));
  std::erase_if(options.types, [](const Types& types) { return types.name.empty(); });
  const auto cores = static_cast<uint32_t>(sys::allowed_core_count());
  options.threads = {std::max(1U, cores - 1)};
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::size_t equals = argument.find('=');
    if (argument.starts_with("--benchmark") || argument == "--help") {
      argv[kept++] = argv[i];
    } else if (!argument.starts_with("--") || equals == std::string_view::npos ||
               !take_option(argument.substr(2, equals - 2), argument.substr(equals + 1), options)) {
      fmt::print(stderr, "expert_bench: {}\n", argument);
      return false;
    }
  }
  argc = kept;
  const bool fits = std::ranges::all_of(options.tokens, [](uint32_t t) { return t <= kTokensMax; }) &&
                    std::ranges::all_of(options.experts, [](double e) { return e <= kExpertsMax - 1; });
  if (!fits) fmt::print(stderr, "expert_bench: at most {} tokens, {} experts\n", kTokensMax, kExpertsMax - 1);
  return fits;
}

int run(int argc, char** argv) {
  Options options;
  if (!take_options(argc, argv, options)) return usage();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return usage();
  // One buffer at a time: it is made when the first benchmark of its types runs.
  std::unique_ptr<Model> model;
  std::string made;
  std::vector<double> reading(std::ranges::max(options.threads) + 1);
  const auto add = [&](const Types& types, const Case& which) {
    const std::string name =
        fmt::format("layer/{}/experts:{}/tokens:{}/threads:{}/split:{}/unit:{}/take:{}", types.name,
                    which.experts, which.tokens, which.threads, split_name(which.rules.split),
                    which.rules.unit_bytes, which.rules.take_parts);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [&, types, which](benchmark::State& state) {
                                   if (made != types.name) {
                                     model.reset();
                                     model = std::make_unique<Model>(types, options.bytes);
                                     made = types.name;
                                   }
                                   double& speed = reading[which.threads];
                                   if (speed == 0) speed = read_speed(model->buffer(), which.threads);
                                   layer_misses(state, *model, options, which, speed);
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  };
  for (const Types& types : options.types) {
    for (const uint32_t threads : options.threads) {
      for (const uint32_t tokens : options.tokens) {
        for (const double experts : options.experts) {
          for (const SplitRule split : options.splits) {
            for (const uint32_t unit : options.unit_bytes) {
              for (const uint32_t parts : options.take_parts)
                add(types, {experts, tokens, threads, {split, unit, parts}});
            }
          }
        }
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace strata::cpu_expert_worker

int main(int argc, char** argv) { return strata::cpu_expert_worker::run(argc, argv); }
