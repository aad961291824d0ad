// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Parts of the HTML pages: escaped text, figures for people, the page around its sections, charts.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stash::tools {

/// Text as HTML shows it, in elements and quoted attributes. Bytes that are no UTF-8 and control characters
/// become U+FFFD.
std::string html_text(std::string_view text);

/// "12.3 MB", with three digits or more.
std::string megabytes(std::int64_t bytes);
/// "12.345 ms" or "1.234 s".
std::string milliseconds(double ms);
/// "12.34 %" of a share.
std::string percent(double share);

/// A whole page with its styles and its script; nothing in it is loaded from anywhere. `title` is plain
/// text, the rest HTML.
std::string html_page(std::string_view title, std::string_view lead,
                      const std::vector<std::string>& sections);

/// A section with a heading; `id` names it for the page's own links.
std::string html_section(std::string_view id, std::string_view heading, std::string_view content);

/// <figure> with a chart. `name` and `description` are plain text and say in words what the picture shows.
std::string html_figure(std::string_view id, double width, double height, std::string_view name,
                        std::string_view description, std::string_view svg, std::string_view caption);

struct legend_entry {
  const char* css_class;
  std::string text;
};
/// Legend as HTML in front of a figure.
std::string html_legend(const std::vector<legend_entry>& entries);

struct chart_point {
  double x = 0, y = 0;
};

/// Lines and labels of both axes of a chart whose plotting area these four numbers bound.
class chart_axes {
 public:
  chart_axes(double left, double right, double top, double bottom) noexcept
      : left_(left), right_(right), top_(top), bottom_(bottom) {}
  /// Values from 0 (x: from x_least) to these ends.
  void range(double x_least, double x_most, double y_most) noexcept;
  double x(double value) const noexcept;
  double y(double value) const noexcept;
  double left() const noexcept { return left_; }
  double right() const noexcept { return right_; }
  double top() const noexcept { return top_; }
  double bottom() const noexcept { return bottom_; }
  double y_most() const noexcept { return y_most_; }

  /// Horizontal lines at fourths of the range, and ticks of x at round values.
  std::string grid(std::string_view x_unit, std::string_view y_unit) const;
  std::string x_axis(std::string_view x_unit) const;
  /// A path through points in their order; what is closer than a fraction of a pixel is joined without
  /// losing the highest and the lowest of it.
  std::string path(const std::vector<chart_point>& points, std::string_view css_class,
                   bool closed = false) const;
  /// A dashed line across the chart at one height.
  std::string level(double value, std::string_view css_class, std::string_view label) const;

 private:
  double left_, right_, top_, bottom_;
  double x_least_ = 0, x_most_ = 1, y_most_ = 1;
};

}  // namespace stash::tools
