#include "gateway/conversations/conversation_types.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <vector>

namespace strata::gateway {

namespace {

// With the length in front, so that no two lists of texts give the same bytes.
void append_counted(std::string& out, std::string_view text) {
  out += fmt::format("{}:", text.size());
  out += text;
}

}  // namespace

std::string id_text(uint64_t high, uint64_t low) { return fmt::format("{:016x}{:016x}", high, low); }

StateIdentity make_state_identity(std::string_view model,
                                  std::span<const std::pair<std::string_view, std::string_view>> options) {
  std::vector<std::pair<std::string_view, std::string_view>> sorted(options.begin(), options.end());
  std::ranges::sort(sorted);
  std::string text;
  for (const auto& [name, value] : sorted) {
    append_counted(text, name);
    append_counted(text, value);
  }
  return {.model = XXH3_64bits(model.data(), model.size()), .options = XXH3_64bits(text.data(), text.size())};
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
