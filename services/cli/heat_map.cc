#include "services/cli/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "services/plot/svg.h"

namespace strata::cli {
namespace {

using residency::Profile;

struct Shade {
  double from;  // times even use
  std::string_view text;
};
constexpr std::array<Shade, 5> kShades = {{{0, " "}, {0.02, "░"}, {0.5, "▒"}, {1.5, "▓"}, {3, "█"}}};
constexpr double kHottest = 4;  // times even use: the darkest colour of the drawing

constexpr uint32_t kColumnsMin = 20;

std::string_view shade_of(double heat) {
  std::string_view text = kShades[0].text;
  for (const Shade& shade : kShades) {
    if (heat >= shade.from) text = shade.text;
  }
  return text;
}

// (layers, experts): use of each expert, 1 is what it would be if all of its layer were used alike.
std::vector<double> heats(const Profile& profile) {
  const std::vector<float> shares = profile.shares();
  std::vector<double> heat(shares.begin(), shares.end());
  for (double& each : heat) each *= profile.experts;
  return heat;
}

}  // namespace

std::string heat_map_text(const Profile& profile, uint32_t columns) {
  constexpr std::string_view kLead = "layer 123 ";
  const auto room = std::max<uint32_t>(columns, kColumnsMin) - static_cast<uint32_t>(kLead.size());
  const uint32_t group = (profile.experts + room - 1) / room;
  const std::vector<double> heat = heats(profile);
  std::string text;
  for (uint32_t layer = 0; layer < profile.layers; ++layer) {
    text += fmt::format("layer {:3} ", layer);
    for (uint32_t first = 0; first < profile.experts; first += group) {
      const uint32_t last = std::min(first + group, profile.experts);
      double sum = 0;
      for (uint32_t expert = first; expert < last; ++expert)
        sum += heat[std::size_t{layer} * profile.experts + expert];
      text += shade_of(sum / (last - first));
    }
    text += "\n";
  }
  text += group == 1 ? "a character: one expert" : fmt::format("a character: {} experts, their mean", group);
  text += "\n";
  for (std::size_t i = 1; i < kShades.size(); ++i)
    text += fmt::format("{}{} {}x", i == 1 ? "" : "  ", kShades[i].text, kShades[i].from);
  return text + "\n";
}

std::string heat_map_svg(const Profile& profile) {
  constexpr double kLeft = 60, kTop = 46, kMargin = 20, kRow = 14, kWidth = 1024;
  const double cell = std::max(kWidth / profile.experts, 2.0);
  const double width = kLeft + cell * profile.experts + kMargin;
  const std::string title = fmt::format("Routing profile: {} layers of {} experts, {} tokens", profile.layers,
                                        profile.experts, profile.tokens);
  plot::Svg svg(width, kTop + kRow * profile.layers + kMargin, title);
  svg.text({kLeft, 18}, title, {.size = 13});
  svg.text({kLeft, 36},
           fmt::format("expert 0 to {}; darkest: {:.0f} times even use", profile.experts - 1, kHottest),
           {.size = 11});
  const std::vector<double> heat = heats(profile);
  for (uint32_t layer = 0; layer < profile.layers; ++layer) {
    const double y = kTop + kRow * layer;
    svg.text({kLeft - 6, y + kRow - 3}, fmt::format("layer {}", layer), {.size = 10, .anchor = "end"});
    for (uint32_t expert = 0; expert < profile.experts; ++expert) {
      const double times = heat[std::size_t{layer} * profile.experts + expert];
      if (times == 0) continue;  // white, as the paper
      svg.rect({kLeft + cell * expert, y, cell, kRow}, plot::heat_colour(times / kHottest),
               fmt::format("layer {} expert {}: {:.2f} times even use", layer, expert, times));
    }
  }
  return svg.str();
}

}  // namespace strata::cli
