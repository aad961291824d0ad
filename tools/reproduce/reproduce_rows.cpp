// SPDX-License-Identifier: Apache-2.0
#include "reproduce/reproduce_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "commands.hpp"
#include "planner/graph/needs.hpp"
#include "planner/verify/validator.hpp"

namespace stash::tools {

using planner::policy;

double ratio(std::int64_t a, std::int64_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0.0;
}

double mb(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

planner::machine at_rate(const char* name, double share) {
  planner::machine m = planner::find_machine(name);
  m.flops_per_second *= share;
  if (share != 1.0) m.name += fmt::format(" at {:.1f}x compute", share);
  return m;
}

planner::plan_options options_for(const reproduction& r, policy p, const planner::machine& m) {
  planner::plan_options o;
  o.chosen_policy = p;
  o.model = m;
  o.swap = planner::swaps(p);
  o.threads = r.threads;
  o.evaluations = r.evaluations;
  o.smallest_budget = false;
  o.seed = r.seed;
  o.stop = r.stop;
  return o;
}

std::string name_of(policy p) {
  const bool says_so = p >= policy::gist || p == policy::none;
  return fmt::format("{}{}", planner::to_string(p), planner::swaps(p) && !says_so ? " + swap" : "");
}

void check(const planner::plan& p) {
  const auto findings = planner::validate(p);
  if (findings.empty()) return;
  throw failed_while_running(fmt::format("{}, batch {}, policy {}: the plan is not valid: {}", p.network.name,
                                         p.network.batch, planner::to_string(p.chosen_policy),
                                         findings.front().message));
}

largest_size grown(const reproduction& r, const growth_case& c) {
  const planner::plan_options options = options_for(r, c.p, c.m);
  growth g;
  g.unit = c.batch > 0 ? 8 : 1;  // 3D U-Net halves its maps three times
  g.first = c.first;
  g.most = c.batch > 0 ? 256 : 1'000'000;
  g.tolerance = r.tolerance;
  g.stop = r.stop;
  g.plan = [&](std::int64_t n) {
    network_size size;
    size.batch = c.batch > 0 ? c.batch : n;
    size.side = c.batch > 0 ? n : 0;
    const stopwatch clock;
    const planner::graph graph = network_graph(c.network, size, r.threads);
    probe p = plan_probe(graph, options, c.memory, c.max_slowdown, long_search_pays(graph));
    r.progress(fmt::format("{} {} {}: {} ({:.1f} s)", c.network, name_of(c.p), n,
                           p.fits ? fmt::format("fits, {:+.1f} % time", 100 * p.slowdown()) : p.limit,
                           clock.seconds()));
    return p;
  };
  return find_largest(g);
}

namespace {

// The words of a growth table: what is compared, and how sizes become a figure.
struct growth_words {
  std::string what;
  std::int64_t unit = 1;
  double power = 1.0;
  const char *size = "", *figure = "";
};

void growth_rows(const reproduction& r, const growth_case& base, const std::vector<growth_row>& rows,
                 const growth_words& words) {
  const auto text = [&](policy p) {
    return fmt::format("{}, {}: {} in {:.1f} GB on {}", base.network, name_of(p), words.what,
                       static_cast<double>(base.memory) / 1e9, base.m.name);
  };
  if (std::none_of(rows.begin(), rows.end(), [&](const growth_row& x) { return r.wants(text(x.p)); })) return;
  if (r.stopped()) return;
  const std::int64_t baseline = grown(r, base).size;
  for (const growth_row& x : rows) {
    if (!r.wants(text(x.p))) continue;
    if (r.stopped()) return;
    const stopwatch clock;
    growth_case own = base;
    own.p = x.p;
    own.first = std::max<std::int64_t>(baseline / words.unit, 1);
    const largest_size found = grown(r, own);
    table_row row;
    row.what = text(x.p);
    row.published = x.published;
    row.figure = std::pow(ratio(found.size, baseline), words.power);
    row.target = x.target;
    row.ours =
        fmt::format("{0}{1} -> {2}{1} ({3}), {4:+.1f} % time, {5:.0f} MB, {6:.0f} MB on the host", baseline,
                    words.size, found.size,
                    baseline > 0 ? fmt::format("{:.2f}x{}", row.figure, words.figure)
                                 : std::string("the baseline fits none"),
                    100 * found.best.slowdown(), mb(found.best.planned_bytes), mb(found.best.host_bytes));
    if (found.interrupted) row.ours += " (interrupted)";
    row.simulated = fmt::format("memory and time on {}, at most {:.0f} % slower, size to {:.1f} %",
                                base.m.name, 100 * base.max_slowdown, 100 * r.tolerance);
    row.limit = fmt::format("at {}: {}", found.next.size, found.next.limit);
    row.verified = found.best.valid ? "yes" : "-";
    row.seconds = clock.seconds();
    r.add(row);
  }
}

}  // namespace

void batch_rows(const reproduction& r, const growth_case& base, const std::vector<growth_row>& rows) {
  growth_words words;
  words.what = "largest batch";
  growth_rows(r, base, rows, words);
}

void volume_rows(const reproduction& r, const growth_case& base, const std::vector<growth_row>& rows) {
  growth_words words;
  words.what = fmt::format("largest volume at batch {}", base.batch);
  words.unit = 8;
  words.power = 3.0;
  words.size = "^3";
  words.figure = " the volume";
  growth_rows(r, base, rows, words);
}

void fixed_row(const reproduction& r, const planner::machine& m, double max_slowdown, const fixed_case& c) {
  table_row row;
  row.what =
      fmt::format("{}, batch {}{}{}{}{}, {}: in {:.2f} GB on {}", c.network, c.size.batch,
                  c.size.steps > 0 ? fmt::format(", {} steps", c.size.steps) : "",
                  c.size.side > 0 ? fmt::format(", side {}", c.size.side) : "",
                  c.size.loss_chunk > 0 ? fmt::format(", loss in chunks of {}", c.size.loss_chunk) : "",
                  c.size.fused_update ? ", update in backward" : "", name_of(c.p),
                  static_cast<double>(c.memory) / 1e9, m.name);
  if (!r.wants(row.what) || r.stopped()) return;
  r.progress(row.what);
  const stopwatch clock;
  const probe x = plan_probe(network_graph(c.network, c.size, r.threads), options_for(r, c.p, m), c.memory,
                             max_slowdown, true);
  row.published = c.published;
  row.target = c.target;
  row.goal = c.goal;
  row.figure = x.fits ? 1.0 : 0.0;
  row.ours = x.planned ? fmt::format("{} MB, {:+.1f} % time, {:.0f} MB on the host",
                                     x.planned_bytes / 1'000'000, 100 * x.slowdown(), mb(x.host_bytes))
                       : std::string("does not fit");
  row.simulated = fmt::format("memory and time on {}, at most {:.0f} % slower", m.name, 100 * max_slowdown);
  row.limit = x.limit;
  row.verified = x.valid ? "yes" : "-";
  row.seconds = clock.seconds();
  r.add(row);
}

}  // namespace stash::tools
