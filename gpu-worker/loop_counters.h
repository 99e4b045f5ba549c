#pragma once
// What the window loop counts. One writer (the loop), any reader: relaxed atomics, nobody waits for anybody.
// The probe turns them into metrics.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata::gpu_worker {

// Where the time of a window goes; the label values of strata_decode_stage_seconds_total.
enum class Stage : uint32_t {
  kRoute,
  kVramExperts,
  kCpuWait,
  kExchangeWait,
  kAttention,
  kHead,
  kDraft,
  kCommit,
  kMixers,
  kDeltaNet,
  kNgram,
};
inline constexpr std::array<std::string_view, 11> kStageNames = {
    "route", "vram_experts", "cpu_wait", "exchange_wait", "attention", "head",
    "draft", "commit",       "mixers",   "delta_net",     "ngram"};
inline constexpr std::size_t kStages = kStageNames.size();

using StageSeconds = std::array<double, kStages>;
inline double& stage(StageSeconds& seconds, Stage which) { return seconds[static_cast<std::size_t>(which)]; }

// Upper bounds of strata_prefill_chunk_tokens; one more bucket takes the rest.
inline constexpr std::array<uint32_t, 12> kChunkBounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};

struct LoopCounters {
  std::atomic<uint64_t> windows{0};
  std::atomic<uint64_t> decode_windows{0};  // windows that committed at least one generated token
  std::atomic<uint64_t> prefill_ns{0};
  std::atomic<uint64_t> decode_ns{0};
  std::array<std::atomic<uint64_t>, kStages> stage_ns{};  // of decoding
  std::array<std::atomic<uint64_t>, kChunkBounds.size() + 1> chunk_buckets{};
  std::atomic<uint64_t> chunk_tokens{0};
  std::atomic<uint32_t> sequences_running{0};
  std::atomic<uint64_t> generated_tokens{0};
  std::atomic<uint64_t> late_masks{0};  // tokens whose answer had to wait for the mask of its next one
};

}  // namespace strata::gpu_worker
