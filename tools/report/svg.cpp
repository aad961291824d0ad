// SPDX-License-Identifier: Apache-2.0
#include "report/svg.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "report/svg_parts.hpp"

namespace stash::tools {
namespace {

constexpr double width = 960, height = 420, left = 80, right = 104, top = 56, bottom = 48;

struct point {
  double x = 0;  // share of the step, by ops
  double mb = 0;
};

// The ops that have an interval in the picture: all but the update.
double planned_ops(const planner::graph& g) {
  return static_cast<double>(std::count_if(
      g.ops.begin(), g.ops.end(), [](const planner::op& o) { return o.stage != planner::op_stage::update; }));
}

// A plan's own steps (encode, decode) share the interval of the op after them.
std::vector<point> curve_of(const planner::plan& p) {
  std::vector<double> live(p.steps.size() + 1, 0.0);
  for (const planner::buffer& b : p.buffers) {
    live[static_cast<std::size_t>(b.first_step)] += static_cast<double>(b.bytes) / 1e6;
    live[static_cast<std::size_t>(b.last_step) + 1] -= static_cast<double>(b.bytes) / 1e6;
  }
  const double ops = planned_ops(p.network);
  std::vector<point> points;
  double sum = 0;
  std::size_t op = 0;  // number of the next one
  std::size_t i = 0;
  while (i < p.steps.size()) {
    // The steps from here to the next op divide the op's interval among them.
    std::size_t end = i;
    while (end < p.steps.size() && p.steps[end].kind != planner::step_kind::run)
      ++end;
    const std::size_t count = std::min(end, p.steps.size() - 1) - i + 1;
    for (std::size_t k = 0; k < count; ++k) {
      sum += live[i + k];
      const double from = static_cast<double>(op) + static_cast<double>(k) / static_cast<double>(count);
      points.push_back({from / ops, sum});
      points.push_back({(from + 1.0 / static_cast<double>(count)) / ops, sum});
    }
    i += count;
    ++op;
  }
  return points;
}

}  // namespace

std::string memory_svg(const std::vector<memory_curve>& curves) {
  double most = 0;
  std::vector<std::vector<point>> drawn;
  for (const memory_curve& c : curves) {
    drawn.push_back(curve_of(*c.plan));
    for (const point& p : drawn.back())
      most = std::max(most, p.mb);
  }
  const double limit = svg_axis_end(most * 1.02);
  const auto x = [](double share) { return left + share * (width - left - right); };
  const auto y = [limit](double mb) { return height - bottom - mb / limit * (height - top - bottom); };
  std::string svg = svg_begin(width, height);
  const planner::plan& first = *curves.front().plan;
  svg += fmt::format(
      "<text x=\"{}\" y=\"22\" font-size=\"15\">{}, batch {}: memory of feature maps and gradients over one "
      "training step</text>\n",
      left, first.network.name, first.network.batch);
  for (int i = 0; i <= 4; ++i) {
    const double mb = limit * i / 4;
    svg += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n", left,
                       width - right, y(mb), y(mb));
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g} MB</text>\n", left - 8,
                       y(mb) + 4, mb);
  }
  double boundary = 0;
  for (const planner::op& o : first.network.ops)
    boundary += o.stage == planner::op_stage::forward ? 1.0 : 0.0;
  boundary /= planned_ops(first.network);
  svg += fmt::format(
      "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#bbbbbb\" stroke-dasharray=\"4 "
      "3\"/>\n",
      x(boundary), top, height - bottom);
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">forward</text>\n", x(boundary / 2),
                     height - 20);
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">backward</text>\n",
                     x((1 + boundary) / 2), height - 20);
  const double w = static_cast<double>(first.sizes.wall) / 1e6;
  svg += fmt::format(
      "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#999999\" stroke-dasharray=\"2 4\"/>\n",
      left, width - right, y(w), y(w));
  // Next to the curves, not among them.
  svg += fmt::format(
      "<text x=\"{0}\" y=\"{1:.1f}\" fill=\"#666666\">largest op (W)</text>\n<text x=\"{0}\" y=\"{2:.1f}\" "
      "fill=\"#666666\">{3:.3g} MB</text>\n",
      width - right + 6, y(w), y(w) + 15, w);
  double legend = left;
  for (std::size_t c = 0; c < curves.size(); ++c) {
    const char* const colour = svg_colours[c % svg_colours.size()];
    std::string path;
    for (const point& p : drawn[c])
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : " L", x(p.x), y(p.mb));
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>\n", path, colour);
    const std::string label = fmt::format("{}: peak {:.3g} MB", curves[c].label,
                                          static_cast<double>(curves[c].plan->sizes.planned_peak) / 1e6);
    svg += fmt::format(
        "<rect x=\"{}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"45\">{}</text>\n",
        legend, colour, legend + 17, label);
    legend += 30 + 7.4 * static_cast<double>(label.size());
  }
  return svg + "</svg>\n";
}

}  // namespace stash::tools
