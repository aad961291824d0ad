// SPDX-License-Identifier: Apache-2.0
#include "report/svg_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace stash::tools {

std::string svg_begin(double width, double height) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      width, height);
}

double svg_axis_end(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(std::max(value, 1e-9))));
  for (const double factor : {1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0}) {
    if (factor * unit >= value) return factor * unit;
  }
  return 10.0 * unit;
}

}  // namespace stash::tools
