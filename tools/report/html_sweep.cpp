// SPDX-License-Identifier: Apache-2.0
// The curve of a sweep: what a step takes under each budget.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/file_kind.hpp"
#include "report/html_parts.hpp"
#include "report/html_report.hpp"
#include "report/svg_parts.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

using json = nlohmann::ordered_json;

struct sweep_point {
  double share = 0;
  std::int64_t budget = 0, planned = 0;
  bool feasible = false, relaxed = false;
  double ms = 0, bound = 0, greedy = -1;
};

std::vector<sweep_point> points_of(const json& sweep) {
  std::vector<sweep_point> points;
  for (const json& r : sweep.at("rows")) {
    sweep_point p;
    p.share = r.at("budget_share").get<double>();
    p.budget = r.at("budget_bytes").get<std::int64_t>();
    p.feasible = r.at("feasible").get<bool>();
    if (p.feasible) {
      p.planned = r.at("planned_peak_bytes").get<std::int64_t>();
      p.ms = r.at("simulated_ms").get<double>();
      p.bound = r.at("bound_ms").get<double>();
      p.relaxed = r.at("bound").get<std::string>() == "relaxation";
      if (r.contains("greedy_ms") && r.at("greedy_ms").is_number())
        p.greedy = r.at("greedy_ms").get<double>();
    }
    points.push_back(p);
  }
  std::sort(points.begin(), points.end(),
            [](const sweep_point& a, const sweep_point& b) { return a.share > b.share; });
  return points;
}

std::string sweep_table(const std::vector<sweep_point>& points, double unplanned) {
  std::string table =
      "<div class=\"scroll\"><table>\n<caption>The fastest plan found for each budget. Shares are of what "
      "the "
      "maps take unplanned, bytes include what no plan changes: weights, gradients, momentum, workspace. "
      "Greedy: encode the largest first, then move it.</caption>\n<thead><tr><th "
      "scope=\"col\">budget</th><th scope=\"col\" "
      "class=\"number\">bytes</th><th scope=\"col\" class=\"number\">planned</th><th scope=\"col\" "
      "class=\"number\">time</th><th scope=\"col\" class=\"number\">overhead</th><th scope=\"col\" "
      "class=\"number\">bound</th><th scope=\"col\" class=\"number\">gap</th><th scope=\"col\" "
      "class=\"number\">greedy</th></tr></thead>\n<tbody>\n";
  for (const sweep_point& p : points) {
    table += fmt::format("<tr><th scope=\"row\">{:.1f} %</th><td class=\"number\">{}</td>", 100 * p.share,
                         megabytes(p.budget));
    if (!p.feasible) {
      table += "<td colspan=\"6\">does not fit</td></tr>\n";
      continue;
    }
    const auto cell = [](const std::string& text) {
      return fmt::format("<td class=\"number\">{}</td>", text);
    };
    table += cell(megabytes(p.planned)) + cell(milliseconds(p.ms)) +
             cell(unplanned > 0 ? percent(p.ms / unplanned - 1) : "-") +
             cell(milliseconds(p.bound) + (p.relaxed ? "" : " (weak)")) +
             cell(p.bound > 0 ? percent(p.ms / p.bound - 1) : "-") +
             cell(p.greedy < 0 ? "does not fit" : milliseconds(p.greedy)) + "</tr>\n";
  }
  return table + "</tbody>\n</table></div>\n";
}

std::string sweep_chart(const std::vector<sweep_point>& points, double unplanned) {
  constexpr double width = 1040, height = 340;
  double most = 0, least_share = 100, most_share = 0;
  const auto overhead = [unplanned](double ms) { return unplanned > 0 ? 100 * (ms / unplanned - 1) : 0.0; };
  std::vector<chart_point> planned, bound, greedy;
  for (const sweep_point& p : points) {
    least_share = std::min(least_share, 100 * p.share);
    most_share = std::max(most_share, 100 * p.share);
    if (!p.feasible) continue;
    planned.push_back({100 * p.share, overhead(p.ms)});
    bound.push_back({100 * p.share, std::max(0.0, overhead(p.bound))});
    if (p.greedy >= 0) greedy.push_back({100 * p.share, overhead(p.greedy)});
    most = std::max({most, overhead(p.ms), p.greedy >= 0 ? overhead(p.greedy) : 0.0});
  }
  least_share = std::max(0.0, least_share - 5);
  chart_axes axes(84, 1012, 20, height - 34);
  axes.range(least_share, most_share + 2, svg_axis_end(std::max(1.05 * most, 0.1)));
  std::string svg = axes.grid(" %", " %");
  for (auto* list : {&planned, &bound, &greedy})
    std::reverse(list->begin(), list->end());
  svg += axes.path(greedy, "greedy") + axes.path(bound, "bound") + axes.path(planned, "after");
  for (const sweep_point& p : points) {
    if (!p.feasible) {
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">does not fit</text>\n",
                         axes.x(100 * p.share), axes.bottom() - 8);
      continue;
    }
    svg += fmt::format(
        "<circle class=\"mark after\" r=\"4.5\" cx=\"{:.1f}\" cy=\"{:.1f}\"><title>{}</title></circle>\n",
        axes.x(100 * p.share), axes.y(overhead(p.ms)),
        html_text(fmt::format("budget {:.1f} %: {}, {:+.2f} % over unplanned, bound {}", 100 * p.share,
                              milliseconds(p.ms), overhead(p.ms), milliseconds(p.bound))));
  }
  const std::string description = fmt::format(
      "Overhead of the fastest plan found over the unplanned step, for budgets from {:.0f} % to {:.0f} % "
      "of the unplanned maps; at most {:.2f} %. The table has the numbers.",
      most_share, least_share, most);
  return html_legend({{"after", "planned"}, {"bound", "lower bound"}, {"greedy", "greedy rule"}}) +
         html_figure(
             "sweep-chart", width, height, "Overhead by budget", description, svg,
             "Across: budget for the maps, as a share of what they take unplanned. Up: time added to the "
             "unplanned step.");
}

}  // namespace

json sweep_from_json(const std::string& text, const std::string& name) {
  try {
    json sweep = json::parse(text);
    static_cast<void>(points_of(sweep));
    for (const char* const field : {"graph", "machine"})
      static_cast<void>(sweep.at(field).get<std::string>());
    static_cast<void>(sweep.at("batch").get<std::int64_t>());
    static_cast<void>(sweep.at("unplanned_ms").get<double>());
    static_cast<void>(sweep.at("baseline_bytes").get<std::int64_t>());
    return sweep;
  } catch (const json::exception& e) {
    const std::string_view kind = planner::description(planner::kind_of(text));
    throw error(errc::bad_format, fmt::format("{}: expected what stash sweep --json writes, got{} {}{}", name,
                                              kind.empty() ? ":" : "", kind.empty() ? e.what() : kind,
                                              what_to_do(name, text, planner::text_kind::unknown)));
  }
}

std::string html_sweep_section(const json& sweep) {
  const std::vector<sweep_point> points = points_of(sweep);
  const double unplanned = sweep.at("unplanned_ms").get<double>();
  const bool any = std::any_of(points.begin(), points.end(), [](const sweep_point& p) { return p.feasible; });
  std::string content = any ? sweep_chart(points, unplanned) : "<p>No plan fits any of the budgets.</p>\n";
  content += sweep_table(points, unplanned);
  content += fmt::format("<p class=\"note\">By the model of {}: unplanned, a step takes {} and {}.</p>\n",
                         html_text(sweep.at("machine").get<std::string>()), milliseconds(unplanned),
                         megabytes(sweep.at("baseline_bytes").get<std::int64_t>()));
  return html_section("budgets", "Time by budget", content);
}

std::string html_sweep(const json& sweep) {
  const std::string graph = sweep.at("graph").get<std::string>();
  const std::string lead =
      fmt::format("Batch {}, policy {}, machine model {}.", sweep.at("batch").get<std::int64_t>(),
                  sweep.value("policy", "unknown"), sweep.at("machine").get<std::string>());
  return html_page(graph + ": memory budgets and time", html_text(lead), {html_sweep_section(sweep)});
}

}  // namespace stash::tools
