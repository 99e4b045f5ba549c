#include "services/plot/svg.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>

namespace strata::plot {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SvgTest, WritesShapesInTheirOrder) {
  Svg svg(200, 100.5, "hits");
  svg.rect({1, 2, 3.25, 4}, "#abcdef");
  svg.line({0, 0}, {10, 1.0 / 3}, {.colour = "#000000", .width = 2, .dashes = "4 3"});
  svg.polyline(std::array<Point, 2>{{{1, 2}, {3, 4}}}, {.colour = "red"});
  svg.circle({5, 6}, 2, "blue");
  svg.text({7, 8}, "x", {.size = 10, .anchor = "end", .colour = "#111111", .turn_degrees = -90});
  EXPECT_EQ(
      svg.str(),
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"200\" height=\"100.5\" viewBox=\"0 0 200 100.5\" "
      "font-family=\"sans-serif\" role=\"img\">\n"
      "<title>hits</title>\n"
      "<rect x=\"0\" y=\"0\" width=\"200\" height=\"100.5\" fill=\"#ffffff\"/>\n"
      "<rect x=\"1\" y=\"2\" width=\"3.25\" height=\"4\" fill=\"#abcdef\"/>\n"
      "<line x1=\"0\" y1=\"0\" x2=\"10\" y2=\"0.33\" stroke=\"#000000\" stroke-width=\"2\" "
      "stroke-dasharray=\"4 3\"/>\n"
      "<polyline fill=\"none\" points=\"1,2 3,4\" stroke=\"red\" stroke-width=\"1\"/>\n"
      "<circle cx=\"5\" cy=\"6\" r=\"2\" fill=\"blue\"/>\n"
      "<text x=\"7\" y=\"8\" font-size=\"10\" text-anchor=\"end\" fill=\"#111111\" transform=\"rotate(-90 7 "
      "8)\">x</text>\n"
      "</svg>\n");
}

TEST(SvgTest, EscapesWhatXmlWouldMisread) {
  Svg svg(10, 10, "a<b");
  svg.text({0, 0}, "R&D \"<x>\"\n");
  svg.rect({0, 0, 1, 1}, "red\" onload=\"x", "1 > 0");
  EXPECT_THAT(svg.str(), HasSubstr("<title>a&lt;b</title>"));
  EXPECT_THAT(svg.str(), HasSubstr(">R&amp;D &quot;&lt;x&gt;&quot; </text>"));
  EXPECT_THAT(svg.str(), HasSubstr("<title>1 &gt; 0</title></rect>"));
  EXPECT_THAT(svg.str(), Not(HasSubstr("onload=\"")));
}

TEST(SvgTest, NumbersThatAreNoneBecomeZero) {
  Svg svg(10, 10, "");
  svg.circle({std::nan(""), -0.001}, INFINITY, "red");
  EXPECT_THAT(svg.str(), HasSubstr("cx=\"0\" cy=\"0\" r=\"0\""));
}

TEST(SvgTest, HeatGetsDarkerWithTheShare) {
  EXPECT_EQ(heat_colour(0), "#ffffff");
  EXPECT_EQ(heat_colour(1), "#08306b");
  EXPECT_EQ(heat_colour(1.0 / 3), "#a6cee3");
  EXPECT_EQ(heat_colour(-5), heat_colour(0));
  EXPECT_EQ(heat_colour(7), heat_colour(1));
  EXPECT_EQ(heat_colour(std::nan("")), heat_colour(0));
}

}  // namespace
}  // namespace strata::plot
