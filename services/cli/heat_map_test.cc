#include "services/cli/heat_map.h"

#include <gmock/gmock.h>

#include <sstream>

namespace strata::cli {
namespace {

using testing::HasSubstr;

residency::Profile profile(uint32_t layers, uint32_t experts, std::vector<uint64_t> counts) {
  return {.model_fingerprint = "m",
          .layers = layers,
          .experts = experts,
          .tokens = 7,
          .counts = std::move(counts)};
}
std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
// Characters, not bytes.
std::size_t width_of(const std::string& line) {
  return static_cast<std::size_t>(
      std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

TEST(HeatMap, ShadesSayHowUseComparesWithEvenUse) {
  // Of 16 uses over 4 experts, 4 each would be even: 0, 1 (0.25 times), 4 (1), 11 (2.75).
  const auto lines = lines_of(heat_map_text(profile(2, 4, {0, 1, 4, 11, 0, 0, 0, 5}), 80));
  EXPECT_EQ(lines[0], "layer   0  ░▒▓");
  EXPECT_EQ(lines[1], "layer   1    █") << "four times even use; nothing for what was not used";
  EXPECT_EQ(lines[2], "a character: one expert");
  EXPECT_THAT(lines[3], HasSubstr("█ 3x"));
}

TEST(HeatMap, FitsTheWidth) {
  for (const uint32_t columns : {1u, 20u, 40u, 80u, 200u}) {
    const auto lines = lines_of(heat_map_text(profile(3, 512, std::vector<uint64_t>(3 * 512, 1)), columns));
    for (int layer = 0; layer < 3; ++layer) {
      EXPECT_LE(width_of(lines[layer]), std::max(columns, 20u));
      EXPECT_GT(width_of(lines[layer]), std::max(columns, 20u) / 2) << "and uses it";
    }
  }
}

TEST(HeatMap, NeighboursThatShareACharacterCountByTheirMean) {
  std::vector<uint64_t> counts(100, 0);
  counts[0] = 50;  // 50 times even use in a group of 10: 5 on average
  counts[99] = 50;
  const auto lines = lines_of(heat_map_text(profile(1, 100, counts), 20));
  EXPECT_EQ(lines[0], "layer   0 █        █");
  EXPECT_EQ(lines[1], "a character: 10 experts, their mean");
}

TEST(HeatMap, ALayerThatWasNeverUsedIsEmpty) {
  const auto lines = lines_of(heat_map_text(profile(1, 4, {0, 0, 0, 0}), 80));
  EXPECT_EQ(lines[0], "layer   0     ");
}

TEST(HeatMap, TheDrawingHasACellForEachUsedExpert) {
  const std::string svg = heat_map_svg(profile(2, 4, {0, 1, 4, 11, 0, 0, 0, 5}));
  EXPECT_THAT(svg, HasSubstr("<svg"));
  EXPECT_THAT(svg, HasSubstr("layer 0 expert 3: 2.75 times even use"));
  EXPECT_THAT(svg, HasSubstr("layer 1 expert 3: 4.00 times even use"));
  EXPECT_THAT(svg, testing::Not(HasSubstr("layer 0 expert 0:")));
  EXPECT_THAT(svg, HasSubstr("2 layers of 4 experts, 7 tokens"));
}

}  // namespace
}  // namespace strata::cli
