// SPDX-License-Identifier: Apache-2.0
// sweep: the fastest plans of one graph under several budgets.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>

#include "commands.hpp"
#include "files/budget.hpp"
#include "files/files.hpp"
#include "files/source.hpp"
#include "files/valid_plan.hpp"
#include "planner/budget_planner.hpp"
#include "planner/explain_names.hpp"
#include "planner/graph/cost.hpp"
#include "planner/search/fastest.hpp"
#include "report/html_report.hpp"
#include "report/report.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

struct options {
  graph_source source;
  plan_source plan;
  std::vector<std::string> budgets{"1.0", "0.9", "0.8", "0.7", "0.6", "0.5", "0.4", "0.3", "0.2"};
  bool no_layout = false;
  std::string json, html;
};

struct row {
  std::int64_t budget = 0, planned = 0, bound_bytes = 0;
  bool feasible = false, valid = false, relaxed = false, interrupted = false;
  double share = 0, simulated_ms = 0, bound_ms = 0, greedy_ms = 0, seconds = 0, cpu_seconds = 0;
  std::string why;
};

double gap(const row& r) {
  return r.bound_ms > 0 ? r.simulated_ms / r.bound_ms - 1.0 : 0.0;
}

nlohmann::ordered_json to_row(const row& r) {
  nlohmann::ordered_json j{{"budget_bytes", r.budget}, {"budget_share", r.share}, {"feasible", r.feasible}};
  if (r.feasible) {
    j["planned_peak_bytes"] = r.planned;
    j["simulated_ms"] = r.simulated_ms;
    j["bound_ms"] = r.bound_ms;
    j["gap"] = gap(r);
    j["bound"] = r.relaxed ? "relaxation" : "weak: sum of durations";
    j["greedy_ms"] = r.greedy_ms < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(r.greedy_ms);
    j["valid"] = r.valid;
  } else {
    j["planned_peak_bytes"] = nullptr;
    j["simulated_ms"] = nullptr;
    j["bound_ms"] = nullptr;
    j["gap"] = nullptr;
    j["why"] = r.why;
  }
  j["interrupted"] = r.interrupted;
  j["plan_seconds"] = r.seconds;
  j["plan_cpu_seconds"] = r.cpu_seconds;
  return j;
}

// A share is one of what the maps take: parameters and workspace, which no plan changes, come on top.
std::int64_t budget_of(const std::string& text, std::int64_t baseline, std::int64_t static_bytes) {
  const std::int64_t maps = baseline - static_bytes;
  const bool share = parse_budget(text, maps, "--budgets") != parse_budget(text, 2 * maps, "--budgets");
  return parse_budget(text, maps, "--budgets") + (share ? static_bytes : 0);
}

// With nothing encoded or moved.
double unplanned_ms(const planner::graph& g, const planner::machine& m) {
  const auto costs = planner::cost_model_of(m);
  return std::accumulate(g.ops.begin(), g.ops.end(), 0.0,
                         [&](double sum, const planner::op& op) { return sum + costs->op_ms(g, op); });
}

// Files and options that cannot be used are found before anything is planned.
void check_usable(const options& o) {
  if (o.plan.machine.empty()) {
    throw error(errc::invalid_argument,
                "--machine: expected the name of a machine or machine.json, got none");
  }
  std::vector<named_file> inputs = o.source.files();
  for (const named_file& file : o.plan.files())
    inputs.push_back(file);
  check_distinct({{"--json", o.json}, {"--html", o.html}}, inputs);
  check_writable(o.json);
  check_writable(o.html);
  o.plan.check();
}

// One row per budget, in rising order, so that more memory never makes a plan slower.
std::vector<row> rows_of(const options& o, const planner::budget_planner& sweep) {
  const std::int64_t baseline = sweep.baseline_bytes(), static_bytes = sweep.static_bytes();
  std::vector<row> rows;
  for (const std::string& text : o.budgets) {
    row r;
    r.budget = budget_of(text, baseline, static_bytes);
    r.share = static_cast<double>(r.budget - static_bytes) / static_cast<double>(baseline - static_bytes);
    rows.push_back(r);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const row& a, const row& b) { return a.budget < b.budget; });
  return rows;
}

// Fills a row. Returns what made it fail, other than a budget that is too small.
std::exception_ptr plan_row(planner::budget_planner& sweep, row& r) {
  std::exception_ptr failure;
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  const auto note_times = [&] {
    r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    r.cpu_seconds = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  };
  try {
    const planner::plan p = sweep.make(r.budget);
    note_times();
    r.feasible = true;
    r.planned = p.sizes.planned_peak_total;
    r.simulated_ms = p.times.simulated_ms;
    r.bound_ms = p.times.bound_ms;
    r.relaxed = p.times.relaxed;
    r.greedy_ms = sweep.greedy_ms(r.budget);
    check_valid(p, fmt::format("the plan for {} bytes", r.budget));
    r.valid = true;
  } catch (const error& e) {
    if (e.code() != errc::infeasible_budget) failure = std::current_exception();
    note_times();
    r.why = e.what();
  } catch (...) {
    failure = std::current_exception();
  }
  r.interrupted = interrupted();
  return failure;
}

// What all rows have in common.
struct swept {
  const planner::graph& g;
  const planner::plan_options& request;
  std::int64_t baseline = 0, static_bytes = 0;
  double unplanned_ms = 0.0;
};

void print_rows(const swept& x, const std::vector<row>& rows) {
  fmt::print("{}, batch {}, on {}: maps {:.1f} MB, weights and workspace {:.1f} MB, {:.3f} ms per step\n",
             planner::printable(x.g.name), x.g.batch, planner::printable(x.request.model->name),
             static_cast<double>(x.baseline - x.static_bytes) / 1e6,
             static_cast<double>(x.static_bytes) / 1e6, x.unplanned_ms);
  fmt::print("{:>7} {:>12} {:>12} {:>12} {:>9} {:>12} {:>8} {:>9} {:>8}\n", "budget", "MB", "planned MB",
             "ms", "overhead", "bound ms", "gap", "greedy", "seconds");
  for (const row& r : rows) {
    if (!r.feasible) {
      fmt::print("{:>6.1f}% {:>12.1f} {:>12} {}\n", 100 * r.share, static_cast<double>(r.budget) / 1e6, "-",
                 "does not fit");
      continue;
    }
    fmt::print("{:>6.1f}% {:>12.1f} {:>12.1f} {:>12.3f} {:>8.2f}% {:>12.3f} {:>7.3f}% {:>9} {:>8.2f}\n",
               100 * r.share, static_cast<double>(r.budget) / 1e6, static_cast<double>(r.planned) / 1e6,
               r.simulated_ms, x.unplanned_ms > 0 ? 100 * (r.simulated_ms / x.unplanned_ms - 1) : 0.0,
               r.bound_ms, 100 * gap(r),
               r.greedy_ms < 0 ? std::string("-")
                               : fmt::format("{:+.2f}%", 100 * (r.greedy_ms / r.simulated_ms - 1)),
               r.seconds);
  }
}

void write_rows(const options& o, const swept& x, const std::vector<row>& rows) {
  if (o.json.empty() && o.html.empty()) return;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const row& r : rows)
    list.push_back(to_row(r));
  nlohmann::ordered_json report{{"graph", x.g.name},
                                {"batch", x.g.batch},
                                {"machine", x.request.model->name},
                                {"policy", planner::to_string(x.request.chosen_policy)},
                                {"seed", x.request.seed},
                                {"evaluations", x.request.evaluations},
                                {"laid_out", x.request.lay_out},
                                {"baseline_bytes", x.baseline},
                                {"beside_maps_bytes", x.static_bytes},
                                {"unplanned_ms", x.unplanned_ms},
                                {"rows", list}};
  const std::string page = o.html.empty() ? "" : html_sweep(report);
  if (!o.json.empty()) write_file(o.json, report.dump(2) + "\n");
  if (!o.html.empty()) write_file(o.html, page);
}

int run(options& o) {
  check_usable(o);
  std::string note;
  const planner::graph g = o.source.make(note);
  planner::plan_options request = o.plan.options(o.source.thread_count(), note);
  o.plan.check_use(request, g);
  const stops_between_steps guard;
  request.stop = [] { return interrupted(); };
  request.smallest_budget = false;
  request.lay_out = !o.no_layout;
  planner::budget_planner sweep(g, request);
  std::vector<row> rows = rows_of(o, sweep);
  const swept common{g, request, sweep.baseline_bytes(), sweep.static_bytes(),
                     unplanned_ms(g, *request.model)};
  std::exception_ptr failure;
  for (std::size_t i = 0; i < rows.size() && !failure; ++i) {
    failure = plan_row(sweep, rows[i]);
    // What was planned before is shown, and then what failed.
    if (failure) rows.resize(i);
  }
  std::reverse(rows.begin(), rows.end());
  print_rows(common, rows);
  write_rows(o, common, rows);
  if (failure) std::rethrow_exception(failure);
  if (interrupted()) throw error(errc::interrupted, "sweep: interrupted; the rows are the best plans so far");
  if (std::none_of(rows.begin(), rows.end(), [](const row& r) { return r.feasible; })) {
    throw error(errc::infeasible_budget,
                fmt::format("sweep: expected a budget that a plan of {} fits, got {}, and: {}", g.name,
                            fmt::join(o.budgets, ", "), rows.front().why));
  }
  return 0;
}

}  // namespace

void add_sweep(CLI::App& app, action& chosen) {
  CLI::App* const command = app.add_subcommand("sweep", "Plan one step for speed under several budgets");
  const auto o = std::make_shared<options>();
  o->plan.policy = "auto";
  o->source.declare(*command, true);
  o->plan.declare(*command);
  command->remove_option(command->get_option("--budget"));
  command
      ->add_option("--budgets", o->budgets,
                   "budgets: sizes, or shares of what the maps take in the baseline (weights and workspace "
                   "come on top)")
      ->type_name("SIZE,...")
      ->delimiter(',');
  command->add_flag("--no-layout", o->no_layout,
                    "no offsets: a budget holds for the largest sum of live bytes");
  command->add_option("--json", o->json, "write the rows")->type_name("FILE")->check(some_text());
  command->add_option("--html", o->html, "write curve and rows to open in a browser")
      ->type_name("FILE")
      ->check(some_text());
  command->callback([&chosen, o] { chosen = [o] { return run(*o); }; });
}

}  // namespace stash::tools
