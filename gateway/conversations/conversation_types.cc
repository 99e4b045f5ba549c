#include "gateway/conversations/conversation_types.h"

#include <algorithm>
#include <string>

namespace strata::gateway {

namespace {

snapshot::Hash128 hash_of(std::string_view text) { return snapshot::hash128(std::as_bytes(std::span(text))); }

}  // namespace

NamespaceId key_namespace(std::string_view key_hash) { return hash_of("key " + std::string(key_hash)); }

NamespaceId shared_namespace() {
  static const NamespaceId shared = snapshot::shared_name_space();
  return shared;
}

IndexIdentity index_identity(const snapshot::StateIdentity& identity) {
  return {.model = hash_of(identity.model_fingerprint), .all = snapshot::digest(identity)};
}

std::vector<TokenRange> clipped(std::span<const TokenRange> ranges, uint32_t end) {
  std::vector<TokenRange> out;
  for (const TokenRange& range : ranges) {
    if (range.begin < end) out.push_back({.begin = range.begin, .end = std::min(range.end, end)});
  }
  return out;
}

std::string_view source_name(Source source) {
  switch (source) {
    case Source::kRunning:
      return "running";
    case Source::kLive:
      return "live";
    case Source::kCheckpoint:
      return "checkpoint";
    case Source::kRam:
      return "ram";
    case Source::kDisk:
      return "disk";
  }
  return "";
}

std::string_view miss_cause_name(MissCause cause) {
  switch (cause) {
    case MissCause::kNone:
      return "none";
    case MissCause::kNew:
      return "new";
    case MissCause::kDiverged:
      return "diverged";
    case MissCause::kEvicted:
      return "evicted";
    case MissCause::kOptionsChanged:
      return "options_changed";
    case MissCause::kIdentity:
      return "identity";
    case MissCause::kTooSmall:
      return "too_small";
    case MissCause::kNoCheckpoint:
      return "no_checkpoint";
    case MissCause::kError:
      return "error";
  }
  return "";
}

}  // namespace strata::gateway
