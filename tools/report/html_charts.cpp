// SPDX-License-Identifier: Apache-2.0
// Memory over the step and the three tracks, as sections of a page.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/memory/search.hpp"
#include "report/html_parts.hpp"
#include "report/html_report.hpp"
#include "report/plan_view.hpp"
#include "report/svg_parts.hpp"

namespace stash::tools {
namespace {

using planner::plan;
using planner::step_kind;

constexpr double width = 1040, left = 84, right = 1012;

// The unplanned step as the planner's own schedule of it.
planner::schedule unplanned(const plan& p) {
  planner::plan_options none;
  none.chosen_policy = planner::policy::none;
  const planner::scheduler facts(p.network);
  const planner::option_set raw = planner::make_options(p.network, none, 0.0);
  const planner::search finder(facts, raw, none);
  return finder.build(finder.least_work());
}

double mb(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

// A value holds from its moment to the next one; `clock` has one entry more than `values`.
std::vector<chart_point> staircase(const std::vector<std::int64_t>& values, const std::vector<double>& clock,
                                   std::int64_t added) {
  std::vector<chart_point> points;
  for (std::size_t i = 0; i < values.size(); ++i) {
    points.push_back({clock[i], mb(values[i] + added)});
    points.push_back({clock[i + 1], mb(values[i] + added)});
  }
  return points;
}

struct clocks {
  std::vector<double> planned, unplanned;
  double boundary = 0;  // begin of the first backward op of the plan
};

// By ms where the plan has times, else by ops: what a plan adds between two ops shares the interval of the op
// after it.
clocks make_clocks(const plan& p, const planner::schedule& before) {
  clocks c;
  std::vector<double> op_begin{0.0};
  if (!p.timeline.empty()) {
    c.planned = clock_of(p);
    double sum = 0.0;
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
      if (p.steps[i].kind != step_kind::run) continue;
      op_begin.push_back(sum += p.timeline[i].end_ms - p.timeline[i].begin_ms);
    }
    // Alternatives that compute something again take a little longer than the unplanned ops.
    const double scale = sum > 0 ? (p.times.unplanned_ms - p.times.update_ms) / sum : 0.0;
    for (double& at : op_begin)
      at *= scale;
  } else {
    double op = 0.0;
    for (std::size_t i = 0; i < p.steps.size();) {
      std::size_t end = i;
      while (end < p.steps.size() && p.steps[end].kind != step_kind::run)
        ++end;
      const std::size_t count = std::min(end, p.steps.size() - 1) - i + 1;
      for (std::size_t k = 0; k < count; ++k)
        c.planned.push_back(op + static_cast<double>(k) / static_cast<double>(count));
      i += count;
      op_begin.push_back(op += 1.0);
    }
    c.planned.push_back(op);
  }
  for (std::size_t i = 0; i < before.steps.size(); ++i)
    c.unplanned.push_back(op_begin[std::min(i, op_begin.size() - 1)]);
  c.unplanned.push_back(op_begin.back());
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    if (activity_of(p, p.steps[i]) != activity::backward) continue;
    c.boundary = c.planned[i];
    break;
  }
  return c;
}

std::string boundary_marks(const chart_axes& axes, double boundary) {
  if (boundary <= 0) return "";
  return fmt::format(
      "<line class=\"grid\" stroke-dasharray=\"4 3\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" "
      "y2=\"{2:.1f}\"/>\n"
      "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">forward</text>\n<text x=\"{5:.1f}\" "
      "y=\"{4:.1f}\">"
      "backward</text>\n",
      axes.x(boundary), axes.top(), axes.bottom(), axes.x(boundary) - 8, axes.top() - 8,
      axes.x(boundary) + 8);
}

// Invisible columns over the curve that say in words what is alive there.
std::string memory_marks(const plan& p, const chart_axes& axes, const std::vector<std::int64_t>& live,
                         const std::vector<double>& clock) {
  constexpr double column = 3;
  std::string svg;
  const std::int64_t static_bytes = static_bytes_of(p);
  for (std::size_t i = 0; i < live.size();) {
    const double from = axes.x(clock[i]);
    std::size_t end = i + 1, most = i;
    while (end < live.size() && axes.x(clock[end]) < from + column) {
      if (live[end] > live[most]) most = end;
      ++end;
    }
    const double to = axes.x(clock[end]);
    svg += fmt::format(
        "<rect class=\"mark\" fill=\"transparent\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\">"
        "<title>{}</title></rect>\n",
        from, axes.top(), std::max(to - from, 0.1), axes.bottom() - axes.top(),
        html_text(fmt::format("{}: {}", title_of(p, p.steps[most]), megabytes(live[most] + static_bytes))));
    i = end;
  }
  return svg;
}

constexpr double lane_top = 14, lane_height = 40, lane_gap = 14;

struct bar {
  double from = 0, to = 0;  // ms
  activity what = activity::forward;
  std::string title;
};

std::string rect(const chart_axes& axes, double lane, const bar& b, const char* text) {
  return fmt::format(
      "<rect class=\"mark {}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"><title>{}</title>"
      "</rect>\n",
      to_string(b.what), axes.x(b.from), lane, std::max(axes.x(b.to) - axes.x(b.from), 0.3), lane_height,
      html_text(text));
}

// Bars of one track in their order. Runs of bars too narrow to be seen become one, in the colour that takes
// most of its time.
std::string lane_of(const chart_axes& axes, double lane, const std::vector<bar>& bars) {
  constexpr double narrow = 0.7;
  const auto pixels = [&axes](double from, double to) { return axes.x(to) - axes.x(from); };
  std::string svg;
  for (std::size_t i = 0; i < bars.size();) {
    std::array<double, 8> time{};
    bar joined = bars[i];
    std::size_t end = i;
    while (end < bars.size() && pixels(bars[end].from, bars[end].to) < narrow &&
           pixels(joined.from, bars[end].to) < 2 * narrow) {
      time[static_cast<std::size_t>(bars[end].what)] += bars[end].to - bars[end].from;
      joined.to = bars[end].to;
      ++end;
    }
    if (end <= i + 1) {
      svg += rect(axes, lane, bars[i], bars[i].title.c_str());
      ++i;
      continue;
    }
    joined.what = static_cast<activity>(std::max_element(time.begin(), time.end()) - time.begin());
    svg += rect(axes, lane, joined,
                fmt::format("{} short steps, most of their time {}; {} in all, the first: {}", end - i,
                            to_string(joined.what), milliseconds(joined.to - joined.from), joined.title)
                    .c_str());
    i = end;
  }
  return svg;
}

std::array<std::vector<bar>, 3> bars_of(const plan& p) {
  std::array<std::vector<bar>, 3> tracks;
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const planner::step_time& t = p.timeline[i];
    if (t.end_ms <= t.begin_ms) continue;
    const activity what = activity_of(p, p.steps[i]);
    tracks[static_cast<std::size_t>(track_of(p.steps[i].kind))].push_back(
        {t.begin_ms, t.end_ms, what,
         fmt::format("{} ({}): {} at {}", title_of(p, p.steps[i]), to_string(what),
                     milliseconds(t.end_ms - t.begin_ms), milliseconds(t.begin_ms))});
  }
  const double end = p.times.simulated_ms, begin = end - p.times.update_ms;
  if (end > begin)
    tracks[0].push_back({begin, end, activity::update, fmt::format("update: {}", milliseconds(end - begin))});
  return tracks;
}

}  // namespace

std::string html_memory_section(const plan& p) {
  constexpr double height = 380;
  const planner::schedule before = unplanned(p);
  const std::vector<std::int64_t> live = live_device_bytes(p), host = live_host_bytes(p);
  const std::vector<std::int64_t> raw = planner::live_bytes(before).list();
  const clocks c = make_clocks(p, before);
  const std::int64_t static_bytes = static_bytes_of(p);
  const auto largest = [](const std::vector<std::int64_t>& v) {
    return v.empty() ? std::int64_t{0} : *std::max_element(v.begin(), v.end());
  };
  const std::int64_t most = std::max({largest(raw) + static_bytes, largest(live) + static_bytes,
                                      largest(host), p.budget_bytes < 2 * largest(raw) ? p.budget_bytes : 0});
  chart_axes axes(left, right, 34, height - 34);
  axes.range(0, std::max(c.planned.back(), c.unplanned.back()), svg_axis_end(1.03 * mb(most)));
  const bool timed = !p.timeline.empty();
  std::string svg = axes.grid(timed ? " ms" : "", " MB");
  svg += fmt::format("<rect class=\"base\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
                     left, axes.y(mb(static_bytes)), right - left, axes.bottom() - axes.y(mb(static_bytes)));
  std::vector<chart_point> after = staircase(live, c.planned, static_bytes);
  std::vector<chart_point> area = after;
  if (!area.empty()) {
    area.push_back({area.back().x, mb(static_bytes)});
    area.insert(area.begin(), {area.front().x, mb(static_bytes)});
  }
  svg += boundary_marks(axes, c.boundary) + axes.path(area, "area", true);
  svg += axes.path(staircase(raw, c.unplanned, static_bytes), "before") + axes.path(after, "after");
  if (largest(host) > 0) svg += axes.path(staircase(host, c.planned, 0), "host");
  if (p.budget_bytes > 0 && mb(p.budget_bytes) <= axes.y_most())
    svg += axes.level(mb(p.budget_bytes), "budget", "budget " + megabytes(p.budget_bytes));
  svg += memory_marks(p, axes, live, c.planned);
  std::vector<legend_entry> legend{{"before", "unplanned"}, {"after", "planned"}};
  if (static_bytes > 0) legend.push_back({"base", "parameters and workspace"});
  if (largest(host) > 0) legend.push_back({"host", "host memory"});
  if (p.budget_bytes > 0) legend.push_back({"budget", "budget"});
  const std::string description = fmt::format(
      "Bytes in use over one training step. Unplanned they reach {}, planned {}{}. The table of figures has "
      "the "
      "numbers.",
      megabytes(largest(raw) + static_bytes), megabytes(largest(live) + static_bytes),
      p.budget_bytes > 0 ? fmt::format(", with a budget of {}", megabytes(p.budget_bytes)) : std::string());
  const std::string caption =
      fmt::format("Bytes alive over {}. Laid out, the planned step takes {}, the unplanned one {}.",
                  timed ? "the predicted time of one step" : "the ops of one step, each as wide as any other",
                  megabytes(p.sizes.planned_peak_total), megabytes(p.sizes.baseline_peak_total));
  return html_section("memory", "Memory over one step",
                      html_legend(legend) + html_figure("memory-chart", width, height, "Memory over one step",
                                                        description, svg, html_text(caption)));
}

std::string html_timeline_section(const plan& p) {
  constexpr std::array<const char*, 3> names{"compute", "copy out", "copy in"};
  const std::array<std::vector<bar>, 3> tracks = bars_of(p);
  const std::size_t lanes = tracks[1].empty() && tracks[2].empty() ? 1 : 3;
  const double bottom = lane_top + static_cast<double>(lanes) * (lane_height + lane_gap);
  chart_axes axes(left, right, lane_top, bottom);
  axes.range(0, p.times.simulated_ms, 1);
  std::string svg;
  std::array<double, 8> time{};
  std::array<double, 3> busy{};
  for (std::size_t l = 0; l < lanes; ++l) {
    const double y = lane_top + static_cast<double>(l) * (lane_height + lane_gap);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n"
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
        left - 8, y + lane_height / 2 + 4, names[l], left, right, y + lane_height, y + lane_height);
    svg += lane_of(axes, y, tracks[l]);
    for (const bar& b : tracks[l]) {
      time[static_cast<std::size_t>(b.what)] += b.to - b.from;
      busy[l] += b.to - b.from;
    }
  }
  svg += axes.x_axis(" ms");
  std::vector<legend_entry> legend;
  std::string words;
  for (std::size_t a = 0; a < time.size(); ++a) {
    if (time[a] <= 0) continue;
    const std::string_view name = to_string(static_cast<activity>(a));
    legend.push_back({name.data(), fmt::format("{} {}", name, milliseconds(time[a]))});
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", name, milliseconds(time[a]));
  }
  std::string caption = "Predicted by the machine model, not measured.";
  if (lanes == 3) {
    const double all = std::max(p.times.simulated_ms, 1e-12);
    caption += fmt::format(" The copy engines are busy for {} (out) and {} (in) of the step.",
                           percent(busy[1] / all), percent(busy[2] / all));
  }
  caption += " For every step by itself, open the Chrome trace (--chrome-trace).";
  return html_section(
      "timeline", "Timeline",
      html_legend(legend) + html_figure("timeline-chart", width, bottom + 28, "Timeline of one step",
                                        fmt::format("What the streams do over {}: {}.",
                                                    milliseconds(p.times.simulated_ms), words),
                                        svg, html_text(caption)));
}

}  // namespace stash::tools
