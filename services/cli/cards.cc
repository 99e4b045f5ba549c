#include "services/cli/cards.h"

#include <algorithm>
#include <cctype>

#include "services/config/nearest.h"

namespace strata::cli {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); },
      [](unsigned char c) { return std::tolower(c); });
}

}  // namespace

std::span<const Card> known_cards() {
  static const std::vector<Card> cards = {
      {"RTX 3060", 12288 * kMiB},    {"RTX 3090", 24576 * kMiB},     {"RTX 4060", 8188 * kMiB},
      {"RTX 4060 Ti", 16380 * kMiB}, {"RTX 4070", 12282 * kMiB},     {"RTX 4080", 16376 * kMiB},
      {"RTX 4090", 24564 * kMiB},    {"RTX 5070", 12227 * kMiB},     {"RTX 5080", 16303 * kMiB},
      {"RTX 5090", 32607 * kMiB},    {"RTX 6000 Ada", 49140 * kMiB}, {"RTX PRO 6000", 97887 * kMiB},
      {"T4", 15360 * kMiB},          {"L40S", 46068 * kMiB},         {"A100 40GB", 40960 * kMiB},
      {"A100 80GB", 81920 * kMiB},   {"H100", 81559 * kMiB},         {"H200", 143771 * kMiB},
  };
  return cards;
}

Result<std::vector<Card>> find_cards(std::span<const std::string> names) {
  std::vector<Card> found;
  for (const std::string& name : names) {
    if (name == "all") {
      found.insert(found.end(), known_cards().begin(), known_cards().end());
      continue;
    }
    const auto card =
        std::ranges::find_if(known_cards(), [&](const Card& known) { return same_name(known.name, name); });
    if (card == known_cards().end()) {
      std::vector<std::string> known;
      for (const Card& each : known_cards()) known.push_back(each.name);
      return fail(Code::kInvalidArgument, "no card '{}' is known{}; --vram takes any size", name,
                  config::did_you_mean(name, known));
    }
    found.push_back(*card);
  }
  return found;
}

}  // namespace strata::cli
