// Round trip of an empty request over a board, between two processes that are each pinned to a physical core
// of their own: ring, notice, answer, notice. Per way of waiting, median and 99th percentile.
//   board_bench [--cpus=A,B] [--round_trips=N] [Google Benchmark's options, e.g. --benchmark_out=F]

#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/shm/board.h"
#include "services/sys/cpus.h"
#include "services/sys/process.h"

namespace strata::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kLastRequest = UINT32_MAX;  // as layer: the answering process ends
// A machine without idle cores takes milliseconds for each.
constexpr std::chrono::seconds kTimeMax{10};
constexpr uint32_t kWarmUp = 1000;

struct Options {
  uint32_t cpus[2] = {0, 0};
  uint32_t round_trips = 200'000;
};

void pin(uint32_t cpu) {
  const Status pinned = sys::pin_this_thread(cpu);
  CHECK(pinned.ok(), "{}", pinned.message());
}

[[noreturn]] void answer_requests(const Segment& segment, uint32_t cpu, const WaitPolicy& policy) {
  sys::die_with_parent();
  pin(cpu);
  auto board = Board::attach(segment.name(), segment.bytes(), segment.instance_id());
  CHECK(board.has_value(), "{}", board.error().message());
  BoardHeader& header = board->header();
  for (uint32_t seen = 0;;) {
    seen = header.work.wait(seen, policy, {});
    header.done_ticket.store(header.request.ticket, std::memory_order_release);
    header.done.ring();
    if (header.request.layer == kLastRequest) _exit(0);
  }
}

void round_trip(benchmark::State& state, const Options& options, const WaitPolicy& policy) {
  auto board = Board::create(segment_name("bench000", "board", random_instance_id()),
                             {.hidden = 2560, .tokens_max = 128, .pairs_max = 1280});
  CHECK(board.has_value(), "{}", board.error().message());
  BoardHeader& header = board->header();
  const pid_t child = fork();
  if (child == 0) answer_requests(board->segment(), options.cpus[1], policy);
  CHECK(child > 0, "fork");
  pin(options.cpus[0]);
  uint64_t ticket = 0;
  const auto ask = [&](uint32_t layer) {
    header.request.ticket = ++ticket;
    header.request.layer = layer;
    header.work.ring();
    for (uint32_t seen = header.done.seq.load(std::memory_order_acquire);
         header.done_ticket.load(std::memory_order_acquire) < ticket;)
      seen = header.done.wait(seen, policy, {});
  };
  std::vector<double> seconds;
  seconds.reserve(options.round_trips);
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    for (uint32_t i = 0; i < kWarmUp && Clock::now() - begin < kTimeMax; ++i) ask(0);
    Clock::time_point before = Clock::now();
    while (seconds.size() < options.round_trips && before - begin < kTimeMax) {
      ask(0);
      const Clock::time_point after = Clock::now();
      seconds.push_back(std::chrono::duration<double>(after - before).count());
      before = after;
    }
    std::ranges::sort(seconds);
    state.SetIterationTime(seconds.empty() ? 0 : seconds[seconds.size() / 2]);
  }
  ask(kLastRequest);
  waitpid(child, nullptr, 0);
  if (seconds.empty()) return state.SkipWithError("no round trip within the time");
  const auto at = [&](double share) {
    return seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size() - 1))] * 1e6;
  };
  state.counters["round_trips"] = static_cast<double>(seconds.size());
  state.counters["median_us"] = at(0.5);
  state.counters["p99_us"] = at(0.99);
  state.counters["p999_us"] = at(0.999);
}

template <class Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Takes the own options out of the arguments, leaves the others.
bool take_options(int& argc, char** argv, Options& options) {
  const std::vector<uint32_t> cores = sys::cpus_by_preference();
  options.cpus[0] = cores.front();
  options.cpus[1] = cores.size() > 1 ? cores[1] : cores.front();
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    constexpr std::string_view kCpus = "--cpus=", kRoundTrips = "--round_trips=";
    if (argument.starts_with(kCpus)) {
      const std::string_view both = argument.substr(kCpus.size());
      const std::size_t comma = both.find(',');
      if (comma == std::string_view::npos || !parse(both.substr(0, comma), options.cpus[0]) ||
          !parse(both.substr(comma + 1), options.cpus[1]))
        return false;
    } else if (argument.starts_with(kRoundTrips)) {
      if (!parse(argument.substr(kRoundTrips.size()), options.round_trips)) return false;
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return true;
}

int run(int argc, char** argv) {
  Options options;
  if (!take_options(argc, argv, options)) {
    std::fprintf(stderr, "usage: board_bench [--cpus=A,B] [--round_trips=N] [--benchmark_...]\n");
    return 2;
  }
  benchmark::AddCustomContext("cpus",
                              std::to_string(options.cpus[0]) + "," + std::to_string(options.cpus[1]));
  const std::pair<const char*, WaitPolicy> policies[] = {
      {"spin", {.yield = false, .park_after_us = 2000}},
      {"yield", {.yield = true, .park_after_us = 2000}},
      {"sleep", {.yield = true, .park_after_us = 1}},
  };
  for (const auto& [name, policy] : policies) {
    benchmark::RegisterBenchmark(
        (std::string("round_trip/") + name).c_str(),
        [options, wait = policy](benchmark::State& state) { round_trip(state, options, wait); })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace strata::shm

int main(int argc, char** argv) { return strata::shm::run(argc, argv); }
