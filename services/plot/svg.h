#pragma once
// A drawing in SVG 1.1: a few shapes and text, written one after another, later ones on top. Coordinates and
// sizes are pixels from the upper left corner, y downwards; colours are what SVG knows ("#3b6fb5", "none").
// Text is escaped; numbers have at most two decimals, so that the same drawing is the same bytes anywhere.

#include <span>
#include <string>
#include <string_view>

namespace strata::plot {

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

struct Stroke {
  std::string_view colour = "#444444";
  double width = 1;
  std::string_view dashes = "";  // e.g. "4 3"; empty: solid
};

struct TextStyle {
  double size = 12;
  std::string_view anchor = "start";  // start, middle, end: which part of the text is at the point
  std::string_view colour = "#222222";
  double turn_degrees = 0;  // clockwise, around the point
};

class Svg {
 public:
  // White, with a title for those who cannot see it.
  Svg(double width, double height, std::string_view title);

  // hint: shown when the pointer rests on it; empty: none.
  void rect(const Box& box, std::string_view fill, std::string_view hint = "");
  void line(Point from, Point to, const Stroke& stroke);
  void polyline(std::span<const Point> points, const Stroke& stroke);
  void circle(Point centre, double radius, std::string_view fill, std::string_view hint = "");
  void text(Point at, std::string_view text, const TextStyle& style = {});

  std::string str() const;  // the whole file

 private:
  std::string body_;
};

// Shade for a share from 0 to 1 (beyond: clamped; not a number: 0), white to dark blue, "#rrggbb".
std::string heat_colour(double share);

}  // namespace strata::plot
