#include "services/plot/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace strata::plot {
namespace {

constexpr double kWidth = 760, kHeight = 460;
constexpr Box kPlot = {70, 45, 500, 350};
constexpr int kTicks = 5;
// Told apart with any kind of colour vision (Okabe and Ito's palette, black last).
constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                 "#e69f00", "#56b4e9", "#999999", "#000000"};

class Axes {
 public:
  explicit Axes(const LineChart& chart) : chart_(chart) {}
  Point place(Point point) const {
    const double x = std::clamp((point.x - chart_.x_min) / (chart_.x_max - chart_.x_min), 0.0, 1.0);
    const double y = std::clamp((point.y - chart_.y_min) / (chart_.y_max - chart_.y_min), 0.0, 1.0);
    return {kPlot.x + x * kPlot.width, kPlot.y + (1 - y) * kPlot.height};
  }

 private:
  const LineChart& chart_;
};

std::string tick_label(const LineChart& chart, double value) {
  return chart.percent ? fmt::format("{:.4g}%", value * 100) : fmt::format("{:.4g}", value);
}

void draw_axes(Svg& svg, const LineChart& chart, const Axes& axes) {
  for (int tick = 0; tick <= kTicks; ++tick) {
    const double x = chart.x_min + (chart.x_max - chart.x_min) * tick / kTicks;
    const double y = chart.y_min + (chart.y_max - chart.y_min) * tick / kTicks;
    const Point bottom = axes.place({x, chart.y_min}), left = axes.place({chart.x_min, y});
    svg.line(bottom, axes.place({x, chart.y_max}), {.colour = "#e4e4e4"});
    svg.line(left, axes.place({chart.x_max, y}), {.colour = "#e4e4e4"});
    svg.text({bottom.x, bottom.y + 18}, tick_label(chart, x), {.anchor = "middle"});
    svg.text({left.x - 8, left.y + 4}, tick_label(chart, y), {.anchor = "end"});
  }
  const double middle_x = kPlot.x + kPlot.width / 2, middle_y = kPlot.y + kPlot.height / 2;
  svg.text({middle_x, kPlot.y + kPlot.height + 42}, chart.x_label, {.anchor = "middle"});
  svg.text({20, middle_y}, chart.y_label, {.anchor = "middle", .turn_degrees = -90});
  svg.text({middle_x, 26}, chart.title, {.size = 15, .anchor = "middle"});
}

void draw_curve(Svg& svg, const Curve& curve, std::size_t number, const Axes& axes) {
  const Stroke stroke{
      .colour = kColours[number % kColours.size()], .width = 2, .dashes = curve.dashed ? "6 4" : ""};
  std::vector<Point> points;
  for (const Point& point : curve.points) points.push_back(axes.place(point));
  svg.polyline(points, stroke);
  constexpr std::size_t kMarksMax = 20;  // more points are a curve by themselves
  if (!curve.dashed && points.size() <= kMarksMax) {
    for (const Point& point : points) svg.circle(point, 3.5, stroke.colour);
  }
  const double y = kPlot.y + 10 + 20 * static_cast<double>(number), x = kPlot.x + kPlot.width + 15;
  svg.line({x, y}, {x + 26, y}, stroke);
  svg.text({x + 32, y + 4}, curve.name);
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  Svg svg(kWidth, kHeight, chart.title);
  const Axes axes(chart);
  draw_axes(svg, chart, axes);
  for (std::size_t i = 0; i < chart.curves.size(); ++i) draw_curve(svg, chart.curves[i], i, axes);
  return svg.str();
}

}  // namespace strata::plot
