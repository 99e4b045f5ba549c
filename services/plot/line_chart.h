#pragma once
// Curves over a common x axis, with axes, a grid and a legend, as SVG.

#include <string>
#include <vector>

#include "services/plot/svg.h"

namespace strata::plot {

struct Curve {
  std::string name = {};
  std::vector<Point> points = {};  // in the order in which they are joined; x and y in the units of the axes
  bool dashed = false;             // for what is no competitor but a mark
};

struct LineChart {
  std::string title = {}, x_label = {}, y_label = {};
  double x_min = 0, x_max = 1, y_min = 0, y_max = 1;  // of the axes; min < max
  bool percent = true;                                // tick labels: 0.25 as 25%
  std::vector<Curve> curves = {};                     // more than eight repeat their colours
};

// 760 x 460 pixels. Points outside the axes are drawn at their edge.
std::string line_chart_svg(const LineChart& chart);

}  // namespace strata::plot
