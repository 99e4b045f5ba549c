// The store with thousands of snapshots, and the disk tier in GB/s. Sizes: `books` uses states of a few
// bytes, so that what is measured is the bookkeeping; `disk` uses the released model's fixed part (113 MiB)
// and pages (1.6 MiB).
//   snapshot_bench [--folder=F] [Google Benchmark's options]      F: where the disk tier is measured;
//   default: the current folder

#include <benchmark/benchmark.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>

#include "services/base/check.h"
#include "services/snapshot/disk_load.h"
#include "services/snapshot/disk_tier.h"
#include "services/snapshot/snapshot_store.h"

namespace strata::snapshot {
namespace {

std::string bench_folder = ".";  // set once, by main

StateIdentity identity_of(uint64_t fixed_bytes, uint64_t page_bytes) {
  return {.model_fingerprint = "bench",
          .numerics = "reproducible",
          .kv_format = "float16",
          .layout_version = 1,
          .page_tokens = 64,
          .page_bytes = page_bytes,
          .fixed_bytes = fixed_bytes,
          .parts = {{.name = "all", .offset = 0, .bytes = fixed_bytes}},
          .options = ""};
}

int64_t steady_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

SnapshotStore make_store(const StateIdentity& identity, uint64_t budget_bytes) {
  auto pool = RamPool::create({.name = shm::segment_name("bench", "snapshots", shm::random_instance_id()),
                               .budget_bytes = budget_bytes,
                               .floor_bytes = 0,
                               .available_bytes = [] { return UINT64_MAX; }});
  CHECK(pool.has_value(), "{}", pool.error().message());
  auto store = SnapshotStore::create({.identity = identity,
                                      .seed = {},
                                      .value = {},
                                      .evictions = {},
                                      .per_history_max = 0,
                                      .now_ms = steady_ms},
                                     std::move(*pool));
  CHECK(store.has_value(), "{}", store.error().message());
  return std::move(*store);
}

std::vector<int32_t> conversation(uint32_t number, uint32_t tokens) {
  std::vector<int32_t> made(tokens);
  for (uint32_t i = 0; i < tokens; ++i) made[i] = static_cast<int32_t>(number * 7919 + i);
  return made;
}

StoreRequest request_of(const SnapshotStore& store, std::span<const int32_t> tokens) {
  return {.identity = store.identity_digest(),
          .name_space = {.high = 1, .low = 1},
          .tokens = tokens,
          .generated = {},
          .kind = SnapshotKind::kEnd,
          .cost_seconds = 1e-3 * static_cast<double>(tokens.size()),
          .tail_bytes = tokens.size() % 64 == 0 ? uint64_t{0} : uint64_t{100},
          .owner = 1};
}

// Stores without touching the bytes: what the copier does is measured by the copier.
SnapshotId put(SnapshotStore& store, std::span<const int32_t> tokens) {
  const auto reservation = store.reserve(request_of(store, tokens));
  CHECK(reservation.has_value(), "{}", reservation.error().message());
  const auto info = store.commit(reservation->ticket,
                                 {.parts = {0}, .pages = std::vector<uint64_t>(reservation->pages.size())});
  CHECK(info.has_value());
  return info->id;
}

constexpr uint32_t kBookTokens = 2000;
constexpr uint64_t kBookBytes = (1 + 31 + 1) * kExtentUnitBytes;  // of a conversation of so many tokens

// A full store: every new conversation pushes one out.
void books_store_and_evict(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  SnapshotStore store = make_store(identity_of(100, 100), count * kBookBytes);
  uint32_t number = 0;
  for (; number < count; ++number) put(store, conversation(number, kBookTokens));
  for (auto _ : state) put(store, conversation(number++, kBookTokens));
  CHECK(store.list().size() == count);
  state.counters["metadata_bytes_per_snapshot"] = static_cast<double>(store.metadata_bytes()) / count;
}
BENCHMARK(books_store_and_evict)->Arg(100)->Arg(1000)->Arg(5000)->Unit(benchmark::kMicrosecond);

void books_open_and_release(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  SnapshotStore store = make_store(identity_of(100, 100), count * kBookBytes);
  std::vector<SnapshotId> ids;
  for (uint32_t number = 0; number < count; ++number)
    ids.push_back(put(store, conversation(number, kBookTokens)));
  std::mt19937 random(1);
  for (auto _ : state) {
    const auto open = store.open(ids[random() % count], 1);
    CHECK(open.has_value() && store.release(open->ticket).ok());
  }
}
BENCHMARK(books_open_and_release)->Arg(5000)->Unit(benchmark::kMicrosecond);

void books_keys(benchmark::State& state) {
  const SnapshotStore store = make_store(identity_of(100, 100), 0);
  const auto tokens = conversation(1, static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(store.keys_of({.high = 1, .low = 1}, tokens, {}));
}
BENCHMARK(books_keys)->Arg(30'000)->Unit(benchmark::kMicrosecond);

constexpr uint64_t kFixedBytes = uint64_t{113} << 20;
constexpr uint64_t kPageBytes = uint64_t{1638} << 10;

void ram_reserve_and_give_back(benchmark::State& state) {
  SnapshotStore store = make_store(identity_of(kFixedBytes, kPageBytes), uint64_t{1} << 30);
  const auto tokens = conversation(1, 64 * 100);
  uint64_t bytes = 0;
  for (auto _ : state) {
    const auto reservation = store.reserve(request_of(store, tokens));
    CHECK(reservation.has_value());
    bytes += store.pool().used_bytes();
    CHECK(store.abandon(reservation->ticket).ok());
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}
BENCHMARK(ram_reserve_and_give_back)->Unit(benchmark::kMillisecond);

// Random bytes do not compress; with zeros in seven of eight zstd does most of the work.
void fill(SnapshotStore& store, const Reservation& reservation, bool compressible, CopyChecksums& checksums) {
  std::mt19937_64 random(5);
  const auto write = [&](const Extent& extent) {
    const auto bytes = store.pool().bytes(extent);
    for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      const uint64_t value = compressible ? random() & 0xff : random();
      std::memcpy(bytes.data() + i, &value, sizeof value);
    }
    return checksum64(bytes);
  };
  checksums.parts = {write(reservation.fixed)};
  for (const PageToCopy& page : reservation.pages) checksums.pages.push_back(write(page.extent));
}

void disk_write_and_read(benchmark::State& state, bool read) {
  const StateIdentity identity = identity_of(kFixedBytes, kPageBytes);
  SnapshotStore store = make_store(identity, uint64_t{1} << 30);
  const auto tokens = conversation(1, 64 * 100);
  const auto reservation = store.reserve(request_of(store, tokens));
  CHECK(reservation.has_value(), "{}", reservation.error().message());
  CopyChecksums checksums;
  fill(store, *reservation, state.range(0) != 0, checksums);
  CHECK(store.commit(reservation->ticket, checksums).has_value());
  const auto open = store.open(reservation->id, 1);
  const auto content = store.content(*open);
  const std::string folder = bench_folder + "/snapshot-bench";
  {
    auto tier = DiskTier::open({.folder = folder,
                                .owner = "snapshot_bench",
                                .identity = identity,
                                .budget_bytes = uint64_t{4} << 30,
                                .new_seed = {},
                                .value = {},
                                .evictions = {},
                                .now_ms = steady_ms,
                                .free_bytes = {},
                                .files = {}});
    CHECK(tier.has_value(), "{}", tier.error().message());
    if (read) CHECK((*tier)->write(*content, {}).has_value());
    CHECK(store.release(open->ticket).ok());
    int64_t bytes = 0;
    for (auto _ : state) {
      if (read) {
        state.PauseTiming();
        CHECK(store.drop(reservation->id).ok());
        state.ResumeTiming();
        CHECK(load_snapshot(**tier, store, reservation->id, 1).has_value());
      } else {
        CHECK((*tier)->write(*content, {}).has_value());
        state.PauseTiming();
        CHECK((*tier)->drop(reservation->id).ok());
        state.ResumeTiming();
      }
      bytes += static_cast<int64_t>(kFixedBytes + 100 * kPageBytes);
    }
    state.SetBytesProcessed(bytes);
    const DiskCounters counters = (*tier)->counters();
    state.counters["stored_share"] =
        static_cast<double>(counters.written_bytes) / static_cast<double>(counters.raw_bytes);
  }
  std::filesystem::remove_all(folder);
}
void disk_write(benchmark::State& state) { disk_write_and_read(state, false); }
void disk_read(benchmark::State& state) { disk_write_and_read(state, true); }
BENCHMARK(disk_write)->ArgName("compressible")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(disk_read)->ArgName("compressible")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace strata::snapshot

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  constexpr std::string_view kFolder = "--folder=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kFolder)) {
      benchmark::ReportUnrecognizedArguments(argc, argv);
      return 2;
    }
    strata::snapshot::bench_folder = argument.substr(kFolder.size());
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
