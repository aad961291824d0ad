// SPDX-License-Identifier: Apache-2.0
#include "report/html_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/html_style.hpp"
#include "report/svg_parts.hpp"
#include "report/utf8.hpp"

namespace stash::tools {
std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
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
      case '\'':
        out += "&#39;";
        break;
      default:
        if ((c >= '\0' && c < ' ') || c == '\x7f') {
          out += "\xef\xbf\xbd";
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string megabytes(std::int64_t bytes) {
  const double mb = static_cast<double>(bytes) / 1e6;
  const int digits = mb >= 100 ? 1 : (mb >= 1 ? 2 : 4);
  return fmt::format("{:.{}f} MB", mb, bytes == 0 ? 0 : digits);
}

std::string milliseconds(double ms) {
  return ms >= 1e4 ? fmt::format("{:.3f} s", ms / 1e3) : fmt::format("{:.3f} ms", ms);
}

std::string percent(double share) {
  return fmt::format("{:.2f} %", 100.0 * share);
}

std::string html_page(std::string_view title, std::string_view lead,
                      const std::vector<std::string>& sections) {
  std::string page = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  page +=
      fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n", html_text(title), html_styles);
  page += fmt::format("<header>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n</header>\n<main>\n",
                      html_text(title), lead);
  for (const std::string& section : sections)
    page += section;
  page += "</main>\n<div id=\"tip\" role=\"presentation\" hidden></div>\n";
  page += fmt::format("<script>{}</script>\n</body>\n</html>\n", html_script);
  return page;
}

std::string html_section(std::string_view id, std::string_view heading, std::string_view content) {
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-heading\">\n<h2 id=\"{0}-heading\">{1}</h2>\n{2}"
      "</section>\n",
      id, html_text(heading), content);
}

std::string html_figure(std::string_view id, double width, double height, std::string_view name,
                        std::string_view description, std::string_view svg, std::string_view caption) {
  return fmt::format(
      "<figure>\n<div class=\"scroll\"><svg role=\"img\" viewBox=\"0 0 {} {}\" aria-labelledby=\"{}-name "
      "{}-text\">\n<title id=\"{}-name\">{}</title>\n<desc id=\"{}-text\">{}</desc>\n{}</svg></div>\n"
      "<figcaption>{}</figcaption>\n</figure>\n",
      width, height, id, id, id, html_text(name), id, html_text(description), svg, caption);
}

std::string html_legend(const std::vector<legend_entry>& entries) {
  std::string list = "<ul class=\"legend\">\n";
  for (const legend_entry& e : entries)
    list += fmt::format("<li><i class=\"{}\"></i>{}</li>\n", e.css_class, html_text(e.text));
  return list + "</ul>\n";
}

void chart_axes::range(double x_least, double x_most, double y_most) noexcept {
  x_least_ = x_least;
  x_most_ = std::max(x_most, x_least + 1e-9);
  y_most_ = std::max(y_most, 1e-9);
}

double chart_axes::x(double value) const noexcept {
  return left_ + (value - x_least_) / (x_most_ - x_least_) * (right_ - left_);
}

double chart_axes::y(double value) const noexcept {
  return bottom_ - value / y_most_ * (bottom_ - top_);
}

std::string chart_axes::grid(std::string_view x_unit, std::string_view y_unit) const {
  std::string svg;
  for (int i = 0; i <= 4; ++i) {
    const double value = y_most_ * i / 4;
    svg += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}{}</text>\n",
        i == 0 ? "axis" : "grid", left_, right_, y(value), y(value), left_ - 8, y(value) + 4, value, y_unit);
  }
  return svg + x_axis(x_unit);
}

std::string chart_axes::x_axis(std::string_view x_unit) const {
  std::string svg;
  const double step = svg_axis_end((x_most_ - x_least_) / 8);
  for (double value = std::ceil(x_least_ / step - 1e-9) * step; value <= x_most_ + 1e-9 * step;
       value += step) {
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4:.4g}{5}</text>\n",
        x(value), bottom_, bottom_ + 5, bottom_ + 19, std::abs(value) < step / 2 ? 0.0 : value, x_unit);
  }
  return svg;
}

std::string chart_axes::path(const std::vector<chart_point>& points, std::string_view css_class,
                             bool closed) const {
  constexpr double column = 0.4;
  std::string d;
  const auto to = [&](double px, double py) {
    d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", px, py);
  };
  for (std::size_t i = 0; i < points.size();) {
    const double from = x(points[i].x);
    double high = points[i].y, low = points[i].y;
    std::size_t end = i + 1;
    while (end < points.size() && x(points[end].x) < from + column) {
      high = std::max(high, points[end].y);
      low = std::min(low, points[end].y);
      ++end;
    }
    to(from, y(points[i].y));
    if (end - i > 2) {
      to(from, y(high));
      to(from, y(low));
    }
    if (end - i > 1) to(x(points[end - 1].x), y(points[end - 1].y));
    i = end;
  }
  if (d.empty()) return "";
  return fmt::format("<path class=\"{}\" d=\"{}{}\"/>\n", css_class, d, closed ? "Z" : "");
}

std::string chart_axes::level(double value, std::string_view css_class, std::string_view label) const {
  return fmt::format(
      "<line class=\"level {0}\" x1=\"{1:.1f}\" x2=\"{2:.1f}\" y1=\"{3:.1f}\" y2=\"{3:.1f}\"/>\n"
      "<text class=\"{0}\" x=\"{2:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
      css_class, left_, right_, y(value), y(value) - 5, html_text(label));
}

}  // namespace stash::tools
