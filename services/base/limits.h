#pragma once
// Everything that is bounded, in one place, checked against each other at compile time. A limit that a user can lower is a
// setting (services/config/settings.h) whose upper bound stands here.

#include <cstddef>
#include <cstdint>

namespace strata {

inline constexpr std::size_t kCacheLine = 64;

// Model shapes that buffers and shared-memory layouts are prepared for. The released model: 48 layers, 512 experts, 10 used.
inline constexpr uint32_t kLayersMax = 256;
inline constexpr uint32_t kExpertsMax = 1024;
inline constexpr uint32_t kExpertsPerTokenMax = 32;
inline constexpr uint32_t kStreamsMax = 8;

// A window: the pending token of each running sequence, or a prompt chunk.
inline constexpr uint32_t kSequencesMax = 16;
inline constexpr uint32_t kDraftTokensMax = 7;
inline constexpr uint32_t kCheckpointsMax = 256;  // states that the device keeps beside the running ones
inline constexpr uint32_t kPrefillChunkTokensMax = 8192;
inline constexpr uint32_t kWindowTokensMax = kSequencesMax * (1 + kDraftTokensMax) + kPrefillChunkTokensMax;

// The dispatch board takes this many tokens at a time; a longer window is dispatched in pieces.
inline constexpr uint32_t kBoardTokensMax = 512;
static_assert(kSequencesMax * (1 + kDraftTokensMax) <= kBoardTokensMax, "a full decode window must fit the dispatch board");

inline constexpr uint32_t kExpertWorkersMax = 8;
inline constexpr uint32_t kExpertThreadsMax = 256;
inline constexpr uint32_t kExchangesInFlightMax = 256;

// HTTP and requests.
inline constexpr std::size_t kRequestBodyBytesMax = std::size_t{64} << 20;
inline constexpr uint32_t kStopStringsMax = 4;
inline constexpr uint32_t kTopLogprobsMax = 20;
inline constexpr uint32_t kQueueLimitMax = 4096;

}  // namespace strata
