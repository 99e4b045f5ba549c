// How long a search takes among 4,096 snapshots of 30,000 tokens each, median and 99th percentile, and how
// much memory the shared tokens take. 64 conversations over 8 system prompts of 3,000 tokens, a snapshot
// every few hundred tokens of each conversation up to its full length.
//   prefix_index_bench [Google Benchmark's options]

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "gateway/conversations/prefix_index.h"
#include "services/base/check.h"

namespace strata::gateway {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kRoots = 8, kConversations = 64, kSnapshotsEach = 64;
constexpr uint32_t kRootTokens = 3'000, kTokens = 30'000;
constexpr int32_t kVocabulary = 150'000;
constexpr uint32_t kSearches = 20'000;
constexpr NamespaceId kOwner{.high = 1, .low = 1};
constexpr IndexIdentity kIdentity{.model = {.high = 0, .low = 1}, .all = {.high = 0, .low = 2}};

struct Filled {
  PrefixIndex index;
  std::vector<std::vector<int32_t>> conversations;
};

const Filled& filled() {
  static const Filled all = [] {
    Filled out;
    std::mt19937 random(1);
    const auto append = [&random](std::vector<int32_t>& tokens, std::size_t size) {
      while (tokens.size() < size) tokens.push_back(static_cast<int32_t>(random() % kVocabulary));
    };
    std::vector<std::vector<int32_t>> roots(kRoots);
    for (auto& root : roots) append(root, kRootTokens);
    const Status begun = out.index.replace(Holder::kStore, 1, {});
    CHECK(begun.ok(), "{}", begun.message());
    uint64_t id = 0;
    for (uint32_t i = 0; i < kConversations; ++i) {
      std::vector<int32_t> tokens = roots[i % kRoots];
      append(tokens, kTokens);
      for (uint32_t snapshot = 0; snapshot < kSnapshotsEach; ++snapshot) {
        // The last of them after all tokens; each conversation has its own places.
        const uint32_t back = (kSnapshotsEach - 1 - snapshot) * ((kTokens - kRootTokens) / kSnapshotsEach);
        const uint32_t position = kTokens - back - (snapshot + 1 == kSnapshotsEach ? 0 : i);
        const Status added = out.index.add(1, {.info = {.id = {.high = 0, .low = ++id},
                                                        .source = Source::kRam,
                                                        .owner = kOwner,
                                                        .identity = kIdentity,
                                                        .position = position},
                                               .tokens = std::span(tokens).first(position)});
        CHECK(added.ok(), "{}", added.message());
      }
      out.conversations.push_back(std::move(tokens));
    }
    return out;
  }();
  return all;
}

// make(conversation) gives the prompt that is searched for.
template <class Make>
void measure(benchmark::State& state, const PrefixIndex& index, Make&& make) {
  std::vector<std::vector<int32_t>> prompts;
  for (const auto& conversation : filled().conversations) prompts.push_back(make(conversation));
  std::vector<double> seconds(kSearches);
  uint64_t reused = 0;
  for (auto _ : state) {
    for (uint32_t i = 0; i < kSearches; ++i) {
      const Clock::time_point before = Clock::now();
      const PrefixMatch match = index.find(prompts[i % prompts.size()], kOwner, kIdentity);
      seconds[i] = std::chrono::duration<double>(Clock::now() - before).count();
      reused += match.reused_tokens();
    }
    std::ranges::sort(seconds);
    state.SetIterationTime(seconds[kSearches / 2]);
  }
  const IndexStats stats = index.stats();
  state.counters["p50_us"] = seconds[kSearches / 2] * 1e6;
  state.counters["p99_us"] = seconds[kSearches * 99 / 100] * 1e6;
  state.counters["reused"] = static_cast<double>(reused) / kSearches;
  state.counters["snapshots"] = static_cast<double>(stats.states());
  state.counters["stored_MiB"] = static_cast<double>(stats.tokens) * sizeof(int32_t) / (1 << 20);
}

void next_turn(benchmark::State& state) {
  measure(state, filled().index, [](std::vector<int32_t> tokens) {
    tokens.insert(tokens.end(), 200, -1);
    return tokens;
  });
}

void edited_in_the_middle(benchmark::State& state) {
  measure(state, filled().index, [](std::vector<int32_t> tokens) {
    tokens[kTokens / 2] = -1;
    return tokens;
  });
}

void never_seen(benchmark::State& state) {
  measure(state, filled().index, [](std::vector<int32_t> tokens) {
    tokens[0] = -1;
    return tokens;
  });
}

// The dearest search: every state is gone, as many as are remembered, and the prompt has to be hashed.
void all_evicted(benchmark::State& state) {
  PrefixIndex index = filled().index;
  for (uint64_t id = 1; id <= uint64_t{kConversations} * kSnapshotsEach; ++id) {
    const Status removed = index.remove({.high = 0, .low = id}, Removal::kEvicted);
    CHECK(removed.ok(), "{}", removed.message());
  }
  measure(state, index, [](std::vector<int32_t> tokens) {
    tokens.push_back(1);
    return tokens;
  });
}

BENCHMARK(next_turn)->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
BENCHMARK(edited_in_the_middle)->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
BENCHMARK(never_seen)->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
BENCHMARK(all_evicted)->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace strata::gateway

BENCHMARK_MAIN();
