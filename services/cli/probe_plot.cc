// The drawing of probe_report.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "services/cli/probe_report.h"
#include "services/plot/svg.h"

namespace strata::cli {

namespace {

constexpr double kWidth = 760, kLeft = 170, kRight = 20, kTop = 50, kRow = 30, kBottom = 50;

// Seconds to pixels; whole decades.
class Axis {
 public:
  explicit Axis(const ProbeReport& report) {
    double least = HUGE_VAL, most = 0;
    for (const ProbeResult& result : report.results)
      for (const ProbeSeries& series : result.series)
        for (const ProbeSample& sample : series.samples) {
          least = std::min(least, sample.seconds);
          most = std::max(most, sample.seconds);
        }
    if (most <= 0) return;
    first_ = std::floor(std::log10(std::max(least, 1e-6)));
    last_ = std::max(std::ceil(std::log10(most)), first_ + 1);
  }
  double place(double seconds) const {
    const double share = (std::log10(std::max(seconds, 1e-6)) - first_) / (last_ - first_);
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
  double first() const { return first_; }  // powers of ten
  double last() const { return last_; }

 private:
  double first_ = -3, last_ = 1;
};

void draw_axis(plot::Svg& svg, const Axis& axis, double bottom) {
  for (double power = axis.first(); power <= axis.last(); ++power) {
    const double seconds = std::pow(10, power), x = axis.place(seconds);
    svg.line({x, kTop}, {x, bottom}, {.colour = "#e4e4e4"});
    svg.text({x, bottom + 18},
             seconds < 1 ? fmt::format("{:g} ms", seconds * 1e3) : fmt::format("{:g} s", seconds),
             {.anchor = "middle"});
  }
  svg.text({(kLeft + kWidth - kRight) / 2, bottom + 40}, "time to first token", {.anchor = "middle"});
}

void draw_series(plot::Svg& svg, const Axis& axis, const ProbeSeries& series, bool cold, double y) {
  const std::string_view colour = cold ? "#d55e00" : "#0072b2";
  std::vector<double> seconds;
  for (const ProbeSample& sample : series.samples) {
    seconds.push_back(sample.seconds);
    svg.circle({axis.place(sample.seconds), y}, 3.5, colour,
               fmt::format("{:.1f} ms, {} of {} tokens reused", sample.seconds * 1e3, sample.cached_tokens,
                           sample.prompt_tokens));
  }
  const double middle = axis.place(median(seconds));
  svg.line({middle, y - 10}, {middle, y + 10}, {.colour = colour, .width = 2});
}

}  // namespace

std::string probe_svg(const ProbeReport& report) {
  std::size_t rows = 0;
  for (const ProbeResult& result : report.results) rows += result.series.size();
  const double bottom = kTop + kRow * static_cast<double>(rows);
  const std::string title =
      fmt::format("{}: coming back to about {} tokens", report.model, report.plan.tokens);
  plot::Svg svg(kWidth, bottom + kBottom, title);
  svg.text({kWidth / 2, 26}, title, {.size = 15, .anchor = "middle"});
  const Axis axis(report);
  draw_axis(svg, axis, bottom);
  double y = kTop + kRow / 2;
  for (const ProbeResult& result : report.results) {
    for (const ProbeSeries& series : result.series) {
      const bool cold = &series == &result.series.front();
      if (cold) svg.text({10, y + 4}, result.pattern);
      svg.text({kLeft - 15, y + 4}, series.name, {.anchor = "end"});
      draw_series(svg, axis, series, cold, y);
      y += kRow;
    }
  }
  return svg.str();
}

}  // namespace strata::cli
