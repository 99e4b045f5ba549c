#include "services/plot/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace strata::plot {
namespace {

// At most two decimals, without trailing zeros.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", std::isfinite(value) ? value : 0.0);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters have no place in XML.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string stroke_attributes(const Stroke& stroke) {
  std::string text =
      fmt::format("stroke=\"{}\" stroke-width=\"{}\"", escaped(stroke.colour), number(stroke.width));
  if (!stroke.dashes.empty()) text += fmt::format(" stroke-dasharray=\"{}\"", escaped(stroke.dashes));
  return text;
}

std::string closing(std::string_view element, std::string_view hint) {
  if (hint.empty()) return "/>\n";
  return fmt::format("><title>{}</title></{}>\n", escaped(hint), element);
}

}  // namespace

Svg::Svg(double width, double height, std::string_view title)
    : body_(fmt::format(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
          "font-family=\"sans-serif\" role=\"img\">\n<title>{2}</title>\n",
          number(width), number(height), escaped(title))) {
  rect({0, 0, width, height}, "#ffffff");
}

void Svg::rect(const Box& box, std::string_view fill, std::string_view hint) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"", number(box.x),
                       number(box.y), number(box.width), number(box.height), escaped(fill));
  body_ += closing("rect", hint);
}

void Svg::line(Point from, Point to, const Stroke& stroke) {
  body_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {}/>\n", number(from.x), number(from.y),
                       number(to.x), number(to.y), stroke_attributes(stroke));
}

void Svg::polyline(std::span<const Point> points, const Stroke& stroke) {
  body_ += "<polyline fill=\"none\" points=\"";
  for (std::size_t i = 0; i < points.size(); ++i)
    body_ += fmt::format("{}{},{}", i == 0 ? "" : " ", number(points[i].x), number(points[i].y));
  body_ += fmt::format("\" {}/>\n", stroke_attributes(stroke));
}

void Svg::circle(Point centre, double radius, std::string_view fill, std::string_view hint) {
  body_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"", number(centre.x), number(centre.y),
                       number(radius), escaped(fill));
  body_ += closing("circle", hint);
}

void Svg::text(Point at, std::string_view text, const TextStyle& style) {
  body_ +=
      fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\"", number(at.x),
                  number(at.y), number(style.size), escaped(style.anchor), escaped(style.colour));
  if (style.turn_degrees != 0)
    body_ += fmt::format(" transform=\"rotate({} {} {})\"", number(style.turn_degrees), number(at.x),
                         number(at.y));
  body_ += fmt::format(">{}</text>\n", escaped(text));
}

std::string Svg::str() const { return body_ + "</svg>\n"; }

std::string heat_colour(double share) {
  // White, light blue, blue, dark blue: even steps of lightness, so that the eye reads it as an amount.
  constexpr std::array<std::array<double, 3>, 4> kShades = {
      {{255, 255, 255}, {166, 206, 227}, {49, 130, 189}, {8, 48, 107}}};
  const double at = std::isnan(share) ? 0 : std::clamp(share, 0.0, 1.0) * (kShades.size() - 1);
  const std::size_t lower = std::min<std::size_t>(static_cast<std::size_t>(at), kShades.size() - 2);
  const auto mixed = [&](std::size_t channel) {
    const double from = kShades[lower][channel], to = kShades[lower + 1][channel];
    return static_cast<int>(std::lround(from + (to - from) * (at - static_cast<double>(lower))));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(0), mixed(1), mixed(2));
}

}  // namespace strata::plot
