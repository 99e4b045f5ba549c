#include "services/plot/line_chart.h"

#include <gmock/gmock.h>

namespace strata::plot {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(LineChartTest, PlacesPointsBetweenTheAxes) {
  const std::string svg =
      line_chart_svg({.title = "Hits & misses",
                      .x_label = "slots",
                      .y_label = "hit rate",
                      .x_max = 0.5,
                      .curves = {{.name = "lru", .points = {{0, 0}, {0.25, 0.5}, {0.5, 1}, {9, -9}}}}});
  // The plot area is 500 x 350 from (70, 45); what lies outside is drawn at its edge.
  EXPECT_THAT(svg, HasSubstr("points=\"70,395 320,220 570,45 570,395\""));
  EXPECT_THAT(svg, HasSubstr(">Hits &amp; misses</text>"));
  for (const char* label : {">slots<", ">hit rate<", ">lru<", ">10%<", ">50%<", ">100%<"})
    EXPECT_THAT(svg, HasSubstr(label));
}

TEST(LineChartTest, TicksArePlainNumbersWhereNoSharesAreShown) {
  const std::string svg = line_chart_svg({.x_max = 1000, .percent = false});
  EXPECT_THAT(svg, HasSubstr(">400<"));
  EXPECT_THAT(svg, HasSubstr(">0.2<"));
  EXPECT_THAT(svg, Not(HasSubstr("%<")));
}

TEST(LineChartTest, MarksAreDashedAndHaveNoDots) {
  const Curve curve{.name = "oracle", .points = {{0, 0}, {1, 1}}, .dashed = true};
  const std::string svg = line_chart_svg({.curves = {curve}});
  EXPECT_THAT(svg, HasSubstr("stroke-dasharray"));
  EXPECT_THAT(svg, Not(HasSubstr("<circle")));
}

TEST(LineChartTest, ManyCurvesRepeatTheColours) {
  LineChart chart;
  for (int i = 0; i < 20; ++i) chart.curves.push_back({.name = "c", .points = {{0, 0}}});
  EXPECT_THAT(line_chart_svg(chart), HasSubstr("#000000"));
}

}  // namespace
}  // namespace strata::plot
