#include "growth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "commands.hpp"
#include "planner/bounds.hpp"
#include "planner/placement.hpp"
#include "planner/sweep.hpp"
#include "planner/validator.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

// What keeps a graph from fitting. `why`: the planner's message, which names the op at the peak.
std::string memory_limit(const planner::graph& g, const planner::plan_options& o, std::int64_t memory,
                         const std::string& why) {
  const planner::wall w = planner::working_set_wall(g);
  const std::int64_t beside = planner::parameter_bytes(g) + planner::workspace_bytes(g);
  if (beside >= memory) return "weights, gradients, momentum and workspace";
  if (w.op >= 0 && w.bytes + beside > memory)
    return fmt::format("working set W of {} ({:.0f} MB)", g.op_at(w.op).name,
                       static_cast<double>(w.bytes) / 1e6);
  if (o.swap && o.model && o.model->host_bytes > 0) {
    planner::plan_options free = o;
    free.model->host_bytes = 0;
    free.evaluations = 0;
    try {
      static_cast<void>(planner::plan_sweep(g, free).make(memory));
      return "host memory";
    } catch (const error& e) {
      if (e.code() != errc::infeasible_budget) throw;
    }
  }
  const std::size_t begin = why.find("while "), end = why.find(" runs");
  const std::string op = begin == std::string::npos || end == std::string::npos || end < begin
                             ? "the peak"
                             : why.substr(begin + 6, end - begin - 6);
  return fmt::format("{} while {} runs", o.swap ? "what cannot move" : "kept maps", op);
}

}  // namespace

probe plan_probe(const planner::graph& g, const planner::plan_options& options, std::int64_t memory,
                 double max_slowdown) {
  probe p;
  planner::plan_sweep sweep(g, options);
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
  if (!p.fits) {
    const planner::plan_load& load = sweep.load();
    const double waits = p.simulated_ms - p.unplanned_ms - load.added_ms;
    p.limit = waits >= load.added_ms
                  ? fmt::format("link ({:.1f} GB each way, waits of {:.1f} %)",
                                static_cast<double>(load.moved_bytes) / 1e9, 100 * waits / p.unplanned_ms)
                  : fmt::format("compute (encoding, decoding and computing again add {:.1f} %)",
                                100 * load.added_ms / p.unplanned_ms);
  }
  return p;
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
