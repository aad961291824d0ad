// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "bench/cases/machine.hpp"
#include "commands/bench_record.hpp"
#include "report/svg_parts.hpp"
#include "stash/cpu.hpp"

namespace stash::tools {
namespace {

constexpr double width = 960, right = 150, top = 76, bottom = 16, row = 18;
constexpr double character = 6.2;  // of a name, on average, at its size of letters

// What the colour of a bar tells.
constexpr const char* kinds[] = {"encode", "decode", "forward", "backward"};

std::size_t kind_of(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kinds); ++i) {
    if (name.substr(0, name.find('/')).find(kinds[i]) != std::string_view::npos) return i;
  }
  return std::size(kinds);
}

const char* colour_of(std::size_t kind) {
  // Not the first colour: that grey marks what lies outside the bars.
  return svg_colours[(kind + 1) % svg_colours.size()];
}

}  // namespace

std::string bench_svg(const bench_record& record) {
  double most = 1;
  std::size_t longest = 0, rows = 0;
  for (const bench_figures& f : record.lines) {
    most = std::max(most, f.copy_share);
    longest = std::max(longest, f.name.size());
    rows += f.copy_share > 0;
  }
  const double left = 24 + character * static_cast<double>(longest);
  const double step = svg_axis_end(most / 6);
  const int steps = static_cast<int>(std::ceil(most / step));
  const double limit = step * steps;
  const double height = top + row * static_cast<double>(rows) + bottom;
  const auto x = [=](double share) { return left + share / limit * (width - left - right); };
  std::string svg = svg_begin(width, height);
  const std::string machine = record.device.empty()
                                  ? fmt::format("{}, {}, {} thread{}", bench::processor_model(), cpu_target(),
                                                record.threads, record.threads == 1 ? "" : "s")
                                  : record.device;
  svg += fmt::format(
      "<text x=\"16\" y=\"22\" font-size=\"15\">Speed compared with a copy of the bytes that have to move "
      "({})</text>\n",
      machine);
  double legend = x(0);
  for (std::size_t k = 0; k < std::size(kinds); ++k) {
    svg += fmt::format(
        "<rect x=\"{}\" y=\"32\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"43\">{}</text>\n",
        legend, colour_of(k), legend + 17, kinds[k]);
    legend += 100;
  }
  for (int i = 0; i <= steps; ++i) {
    const double share = step * i;
    svg += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#dddddd\"/>\n",
                       x(share), top - 6, height - bottom);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.4g} %</text>\n", x(share),
                       top - 12, 100 * share);
  }
  svg += fmt::format(
      "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"{3}\" stroke-dasharray=\"4 3\"/>\n",
      x(1), top - 6, height - bottom, svg_colours[0]);
  double y = top;
  for (const bench_figures& f : record.lines) {
    if (f.copy_share == 0) continue;
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-size=\"11\">{}</text>\n", left - 8,
                       y + 12, f.name);
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n", left, y + 2,
                       x(f.copy_share) - left, row - 5, colour_of(kind_of(f.name)));
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" font-size=\"11\">{:.0f} %, {:.1f} GB/s</text>\n",
                       x(f.copy_share) + 6, y + 12, 100 * f.copy_share, f.gigabytes_per_second());
    y += row;
  }
  return svg + "</svg>\n";
}

}  // namespace stash::tools
