// SPDX-License-Identifier: Apache-2.0
#include "report/html_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/source.hpp"
#include "report/html_parts.hpp"

namespace stash::tools {
namespace {

using planner::plan;

constexpr std::size_t most_rows = 40;

std::string tile(const std::string& what, const std::string& figure, const std::string& below) {
  return fmt::format("<li><span>{}</span><b>{}</b><span>{}</span></li>\n", html_text(what), html_text(figure),
                     html_text(below));
}

double ratio(std::int64_t before, std::int64_t after) {
  return after > 0 ? static_cast<double>(before) / static_cast<double>(after) : 0.0;
}

std::string tiles(const plan& p) {
  const planner::plan_sizes& z = p.sizes;
  const planner::plan_times& t = p.times;
  std::string list = "<ul class=\"tiles\">\n";
  list += tile("Memory, everything", megabytes(z.planned_peak_total),
               fmt::format("{} unplanned, {:.2f} x", megabytes(z.baseline_peak_total),
                           ratio(z.baseline_peak_total, z.planned_peak_total)));
  list += tile("Feature maps and gradients", megabytes(z.planned_peak),
               fmt::format("{} unplanned, {:.2f} x", megabytes(z.baseline_peak),
                           ratio(z.baseline_peak, z.planned_peak)));
  if (p.budget_bytes > 0) {
    list += tile("Budget", megabytes(p.budget_bytes),
                 fmt::format("{} of it used", percent(ratio(z.planned_peak_total, p.budget_bytes))));
  }
  if (!t.model.empty()) {
    const double over = t.unplanned_ms > 0 ? t.simulated_ms / t.unplanned_ms - 1 : 0.0;
    list += tile("Time of a step, predicted", milliseconds(t.simulated_ms),
                 fmt::format("{} unplanned, {:+.2f} %", milliseconds(t.unplanned_ms), 100 * over));
    const double gap = t.bound_ms > 0 ? t.simulated_ms / t.bound_ms - 1 : 0.0;
    list += tile("Above the lower bound of time", percent(gap),
                 fmt::format("bound {}{}", milliseconds(t.bound_ms), t.relaxed ? "" : ", weak"));
  } else {
    list += tile("Above the lower bound of memory", percent(ratio(z.planned_peak, z.bound) - 1),
                 fmt::format("bound {} (maps)", megabytes(z.bound)));
  }
  return list + "</ul>\n";
}

struct figure_row {
  const char* what;
  std::string figure, meaning;
};

std::string figures_section(const plan& p) {
  const planner::plan_sizes& z = p.sizes;
  const planner::plan_times& t = p.times;
  std::vector<figure_row> rows{
      {"planned peak", megabytes(z.planned_peak_total),
       "maps, parameters and workspace: what the arena takes"},
      {"maps", megabytes(z.planned_peak), "feature maps, gradients and encoded forms"},
      {"largest sum of live maps", megabytes(z.max_live),
       p.laid_out ? fmt::format("the layout is {} higher", percent(ratio(z.planned_peak, z.max_live) - 1))
                  : "the plan gives no offsets: this is its peak"},
      {"parameters", megabytes(z.parameter_bytes), "weights, their gradients, momentum and statistics"},
      {"workspace", megabytes(z.workspace_bytes), "the largest of one op"},
      {"host memory", megabytes(z.host_bytes), "for what is swapped out"},
      {"bound of the maps", megabytes(z.bound),
       fmt::format("no plan of this order and these encodings that keeps all on the device gets below it "
                   "(the plan is {:.3f} x)",
                   ratio(z.planned_peak, z.bound))},
      {"largest op (W)", megabytes(z.wall),
       z.wall_op.valid() ? p.network.op_at(z.wall_op).name : std::string("none")},
      {"forward/backward boundary", megabytes(z.boundary), "live maps while the first backward op runs"}};
  if (!t.model.empty()) {
    rows.push_back({"predicted time", milliseconds(t.simulated_ms), "by the model of " + t.model});
    rows.push_back({"unplanned time", milliseconds(t.unplanned_ms), "by the same model"});
    rows.push_back(
        {"bound of the time", milliseconds(t.bound_ms),
         t.relaxed ? "by the prices of the linear relaxation: no plan of this order, these options and this "
                     "budget takes less"
                   : "weak: the sum of the durations of all ops"});
  }
  std::string table =
      "<div class=\"scroll\"><table>\n<caption>Sizes and bounds of the plan</caption>\n<thead><tr>"
      "<th scope=\"col\">figure</th><th scope=\"col\" class=\"number\">value</th><th "
      "scope=\"col\">meaning</th></tr></thead>\n<tbody>\n";
  for (const figure_row& r : rows) {
    table += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td><td>{}</td></tr>\n",
                         r.what, html_text(r.figure), html_text(r.meaning));
  }
  return html_section("figures", "Figures", table + "</tbody>\n</table></div>\n");
}

std::string storage_row(const plan& p, planner::storage_id s) {
  const planner::stash_choice& c = p.choices[s];
  const double kept =
      c.bytes_before > 0 ? static_cast<double>(c.bytes_after) / static_cast<double>(c.bytes_before) : 0.0;
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td "
      "class=\"number\">{:.1f} % <meter min=\"0\" max=\"1\" value=\"{:.4f}\" "
      "aria-hidden=\"true\"></meter></td>"
      "<td>{}</td></tr>\n",
      html_text(p.network.storages[s].name), html_text(form_name(c)), megabytes(c.bytes_before),
      megabytes(c.bytes_after), 100 * kept, std::clamp(kept, 0.0, 1.0),
      html_text(c.reason + (c.swapped ? "; on the host while nobody reads it" : "")));
}

std::string storages_section(const plan& p) {
  std::vector<planner::storage_id> kept;
  for (const planner::storage_id s : p.choices.ids()) {
    if (p.choices[s].kind != planner::stash_kind::none) kept.push_back(s);
  }
  std::stable_sort(kept.begin(), kept.end(), [&p](planner::storage_id a, planner::storage_id b) {
    return p.choices[a].bytes_before > p.choices[b].bytes_before;
  });
  if (kept.empty()) return html_section("tensors", "Largest tensors", "<p>Backward needs no tensor.</p>\n");
  const std::size_t shown = std::min(kept.size(), most_rows);
  std::string table = fmt::format(
      "<div class=\"scroll\"><table>\n<caption>{} of {} tensors that backward needs, largest first. Tensors "
      "that "
      "are swapped take their bytes after on the host.</caption>\n<thead><tr><th scope=\"col\">tensor</th>"
      "<th scope=\"col\">kept as</th><th scope=\"col\" class=\"number\">bytes before</th><th scope=\"col\" "
      "class=\"number\">bytes after</th><th scope=\"col\" class=\"number\">kept</th><th "
      "scope=\"col\">why</th>"
      "</tr></thead>\n<tbody>\n",
      shown, kept.size());
  for (std::size_t i = 0; i < shown; ++i)
    table += storage_row(p, kept[i]);
  table += "</tbody>\n</table></div>\n";
  if (kept.size() > shown) {
    std::int64_t before = 0, after = 0;
    for (std::size_t i = shown; i < kept.size(); ++i) {
      before += p.choices[kept[i]].bytes_before;
      after += p.choices[kept[i]].bytes_after;
    }
    table += fmt::format(
        "<p class=\"note\">The other {} together: {} before, {} after. <code>stash explain</code> "
        "lists them all.</p>\n",
        kept.size() - shown, megabytes(before), megabytes(after));
  }
  return html_section("tensors", "Largest tensors", table);
}

std::string lead_of(const plan& p) {
  std::string lead = fmt::format("Batch {}, policy {}", p.network.batch, planner::to_string(p.chosen_policy));
  if (!p.times.model.empty()) lead += ", machine model " + p.times.model;
  if (!p.machine.empty()) lead += fmt::format("; workspaces asked for on {}", p.machine);
  return html_text(fmt::format("{}; {} thread{}, {} ops, {} steps.", lead, p.threads,
                               p.threads == 1 ? "" : "s", p.network.ops.size(), p.steps.size()));
}

}  // namespace

std::string html_report(const plan& p, const nlohmann::ordered_json* sweep) {
  std::vector<std::string> sections{tiles(p), html_memory_section(p)};
  if (!p.timeline.empty()) sections.push_back(html_timeline_section(p));
  sections.push_back(storages_section(p));
  if (sweep != nullptr) sections.push_back(html_sweep_section(*sweep));
  sections.push_back(figures_section(p));
  return html_page(p.network.name + ": memory plan of a training step", lead_of(p), sections);
}

}  // namespace stash::tools
