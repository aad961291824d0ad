// SPDX-License-Identifier: Apache-2.0
#include "reproduce/growth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "commands.hpp"
#include "planner/baselines/policies.hpp"
#include "planner/budget_planner.hpp"
#include "planner/memory/bounds.hpp"
#include "planner/memory/placement.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

// What a search cannot help against; empty if there is nothing of the kind.
std::string hard_limit(const planner::graph& g, std::int64_t memory) {
  const planner::wall w = planner::working_set_wall(g);
  const std::int64_t static_bytes = planner::parameter_bytes(g) + planner::workspace_bytes(g);
  if (static_bytes >= memory) return "weights, gradients, momentum and workspace";
  if (!w.op.valid() || w.bytes + static_bytes <= memory) return {};
  return fmt::format("working set W of {} ({:.0f} MB)", g.op_at(w.op).name,
                     static_cast<double>(w.bytes) / 1e6);
}

// What keeps a graph from fitting. `why`: the planner's message, which names the op at the peak.
std::string memory_limit(const planner::graph& g, const planner::plan_options& o, std::int64_t memory,
                         const std::string& why) {
  if (o.swap && o.model && o.model->host_bytes > 0) {
    planner::plan_options free = o;
    free.model->host_bytes = 0;
    free.evaluations = 0;
    free.smallest_budget = false;
    try {
      static_cast<void>(planner::budget_planner(g, free).make(memory));
      return "host memory";
    } catch (const error& e) {
      if (e.code() != errc::infeasible_budget) throw;
    }
  }
  return what_is_there(why, o.swap);
}

probe plan_once(const planner::graph& g, const planner::plan_options& options, std::int64_t memory,
                double max_slowdown) {
  probe p;
  planner::plan_options own = options;
  own.smallest_budget = false;
  planner::budget_planner sweep(g, own);
  planner::plan made;
  try {
    made = sweep.make(memory);
  } catch (const error& e) {
    if (e.code() != errc::infeasible_budget) throw;
    p.limit = memory_limit(g, options, memory, e.what());
    return p;
  }
  p.planned = true;
  const auto findings = planner::validate(made);
  p.valid = findings.empty();
  if (!p.valid) {
    throw failed_while_running(fmt::format("{}, batch {}, policy {}: the plan is not valid: {}", g.name,
                                           g.batch, planner::to_string(options.chosen_policy),
                                           findings.front().message));
  }
  p.planned_bytes = made.sizes.planned_peak_total;
  p.host_bytes = made.sizes.host_bytes;
  p.bound_bytes = made.sizes.bound;
  p.unplanned_ms = made.times.unplanned_ms;
  p.simulated_ms = made.times.simulated_ms;
  p.bound_ms = made.times.bound_ms;
  p.fits = p.slowdown() <= max_slowdown;
  if (!p.fits) p.limit = what_slows(sweep.load(), made.times);
  return p;
}

}  // namespace

planner::plan_options quick_search(planner::plan_options o) {
  o.relax = false;
  o.evaluations = std::min(o.evaluations, 500);
  return o;
}

bool long_search_pays(const planner::graph& g) {
  constexpr std::size_t most_ops = 20000;  // a search of more takes minutes
  return g.ops.size() <= most_ops;
}

std::string what_slows(const planner::plan_load& load, const planner::plan_times& times) {
  const double waits = times.simulated_ms - times.unplanned_ms - load.added_ms;
  if (waits < load.added_ms) {
    return fmt::format("compute (encoding, decoding and computing again add {:.1f} %)",
                       100 * load.added_ms / times.unplanned_ms);
  }
  return fmt::format("link ({:.1f} GB each way, waits of {:.1f} %)",
                     static_cast<double>(load.moved_bytes) / 1e9, 100 * waits / times.unplanned_ms);
}

std::string what_is_there(const std::string& why, bool swap) {
  const std::size_t begin = why.find("while "), end = why.find(" runs");
  const std::string op = begin == std::string::npos || end == std::string::npos || end < begin
                             ? "the peak"
                             : why.substr(begin + 6, end - begin - 6);
  return fmt::format("{} while {} runs", swap ? "what cannot move" : "kept maps", op);
}

probe plan_probe(const planner::graph& g, const planner::plan_options& options, std::int64_t memory,
                 double max_slowdown, bool long_search) {
  probe p;
  p.limit = hard_limit(g, memory);
  if (!p.limit.empty()) return p;
  p = plan_once(g, quick_search(options), memory, max_slowdown);
  const bool searches =
      options.chosen_policy != planner::policy::none && !planner::has_rule(options.chosen_policy);
  return p.fits || !searches || !long_search ? p : plan_once(g, options, memory, max_slowdown);
}

largest_size find_largest(const growth& g) {
  largest_size result;
  const auto fits = [&](std::int64_t units) {
    probe p = g.plan(units * g.unit);
    p.size = units * g.unit;
    ++result.probes;
    if (p.fits) {
      result.size = p.size;
      result.best = std::move(p);
      return true;
    }
    result.next = std::move(p);
    return false;
  };
  const auto stopped = [&] { return result.interrupted = result.interrupted || (g.stop && g.stop()); };
  // low fits (0: nothing has yet), high does not.
  std::int64_t low = 0, high = 0;
  for (std::int64_t n = std::clamp<std::int64_t>(g.first, 1, g.most); high == 0 && !stopped();) {
    if (fits(n)) {
      low = n;
      if (n == g.most) return result;
      n = std::min(2 * n, g.most);
    } else {
      high = n;
    }
  }
  while (low + 1 < high && !stopped()) {
    if (low > 0 && static_cast<double>(high - low) <= g.tolerance * static_cast<double>(low)) break;
    const std::int64_t middle = low == 0 ? high / 2 : low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return result;
}

}  // namespace stash::tools
