// SPDX-License-Identifier: Apache-2.0
// What prices prove, without a solver.

#include "planner/time/relaxation.hpp"

#include <algorithm>
#include <limits>

namespace stash::planner {
namespace {

double price(const std::vector<double>& list, std::size_t k) {
  return k < list.size() ? list[k] : 0.0;
}

// A column between 0 (or `least`) and `most` adds at least this to the bound.
double column(double reduced_cost, double least, double most) {
  return reduced_cost >= 0.0 ? reduced_cost * least : reduced_cost * most;
}

// Prices must have the sign of their row; others say nothing.
double at_most_zero(const std::vector<double>& list, std::size_t k) {
  return std::min(0.0, price(list, k));
}
double at_least_zero(const std::vector<double>& list, std::size_t k) {
  return std::max(0.0, price(list, k));
}

// A sum that never falls counts each of its bytes from some step on: the cheapest one, or never.
double least_of_tails(const std::vector<double>& cost) {
  double tail = 0.0, least = 0.0;
  for (std::size_t k = cost.size(); k-- > 0;) {
    tail += cost[k];
    least = std::min(least, tail);
  }
  return least;
}

}  // namespace

std::vector<std::vector<double>> priced_options(const step_problem& p, const dual_prices& prices) {
  const dual_prices& d = prices;
  std::vector<std::vector<double>> costs;
  costs.reserve(p.items.size());
  const std::size_t steps = p.ms.size();
  for (const item& i : p.items) {
    std::vector<double>& list = costs.emplace_back();
    for (const item_option& o : i.options) {
      double cost = 0.0;
      const auto held = [&](std::size_t k, double bytes) {
        if (k < steps) cost += price(d.held, k) * bytes;
      };
      for (const held_bytes& h : o.held) {
        if (h.passing) continue;
        held(position_of(h.first), static_cast<double>(h.bytes));
        held(position_of(h.last) + 1, -static_cast<double>(h.bytes));
      }
      for (const transfer& t : o.transfers) {
        const auto bytes = static_cast<double>(t.bytes);
        held(position_of(t.released) + 1, bytes);
        held(position_of(t.needed), -bytes);
        if (position_of(t.released) + 1 < steps)
          cost += price(d.released, position_of(t.released) + 1) * bytes;
        cost += price(d.needed, position_of(t.needed)) * bytes;
      }
      for (const added_work& w : o.work)
        cost += at_least_zero(d.compute, position_of(w.tick)) * w.ms;
      list.push_back(cost);
    }
  }
  return costs;
}

namespace {

/// The most that any column can be in a plan that is worth a look.
struct column_limits {
  double bytes = 0.0, ms = 0.0, moved = 0.0;
};

column_limits limits_of(const step_problem& p, bool linked) {
  column_limits most;
  for (const item& i : p.items) {
    double most_held = 0.0, most_moved = 0.0, most_work = 0.0;
    for (const item_option& o : i.options) {
      double held = 0.0, transfers = 0.0, work = 0.0;
      for (const held_bytes& h : o.held)
        held += static_cast<double>(h.bytes);
      for (const transfer& t : o.transfers)
        transfers += static_cast<double>(t.bytes);
      for (const added_work& w : o.work)
        work += w.ms;
      most_held = std::max(most_held, held + transfers);
      most_moved = std::max(most_moved, transfers);
      most_work = std::max(most_work, work);
    }
    most.bytes += most_held;
    most.moved += most_moved;
    most.ms += most_work;
  }
  for (const double ms : p.ms)
    most.ms += ms;
  if (linked) most.ms += most.moved / p.link.out_rate + most.moved / p.link.in_rate;
  return most;
}

}  // namespace

double bound_from(const step_problem& p, const dual_prices& prices) {
  const dual_prices& d = prices;
  const std::size_t steps = p.ms.size();
  if (steps == 0) return 0.0;
  const bool linked = p.link.out_rate > 0.0 && p.link.in_rate > 0.0;
  const auto [all_bytes, all_ms, moved] = limits_of(p, linked);
  const double shared = p.link.contention > 0.0 ? 1.0 / p.link.contention - 1.0 : 0.0;
  const auto limit = static_cast<double>(p.limit);

  double bound = 0.0;
  std::vector<double> sent_cost(steps, 0.0), fetched_cost(steps, 0.0);
  for (const std::vector<double>& costs : priced_options(p, d))
    bound += *std::min_element(costs.begin(), costs.end());
  for (std::size_t k = 0; k < steps; ++k) {
    const double compute = at_least_zero(d.compute, k);
    const double out = linked ? at_least_zero(d.out, k) : 0.0, in = linked ? at_least_zero(d.in, k) : 0.0;
    const double both_out = linked ? at_least_zero(d.both_out, k) : 0.0;
    const double both_in = linked ? at_least_zero(d.both_in, k) : 0.0;
    const double begin = at_most_zero(d.begin, k), end = at_most_zero(d.end, k),
                 inner = at_most_zero(d.inner, k);
    const double sent = at_most_zero(d.sent, k), fetched = at_most_zero(d.fetched, k);
    const double deadline = at_least_zero(d.deadline, k), host = at_most_zero(d.host, k);
    // Right-hand sides.
    bound += compute * p.ms[k];
    bound += begin * (limit - static_cast<double>(p.fixed_first[k]));
    bound += end * (limit - static_cast<double>(p.fixed_last[k]));
    bound += inner * (limit - static_cast<double>(p.fixed[k]));
    if (host < 0.0) bound += host * static_cast<double>(p.link.host_bytes);
    // T
    bound += column(1.0 - compute - out - in - both_out - both_in, p.ms[k], all_ms);
    // H
    const auto next = [&](const std::vector<double>& list) { return price(list, k + 1); };
    bound += column(-(price(d.held, k) - next(d.held) + begin + end + inner), 0.0, all_bytes);
    if (!linked) continue;
    // A, B
    bound += column(-(price(d.released, k) - next(d.released) - sent), 0.0, moved);
    bound += column(-(price(d.needed, k) - next(d.needed) - deadline), 0.0, moved);
    // S and F: rows of this step and of the next one, which name the step before.
    const double next_out = at_least_zero(d.out, k + 1), next_in = at_least_zero(d.in, k + 1);
    const double next_both_out = at_least_zero(d.both_out, k + 1);
    const double next_both_in = at_least_zero(d.both_in, k + 1);
    const double a = 1.0 / p.link.out_rate, b = 1.0 / p.link.in_rate;
    double s = 0.0, f = 0.0;
    s += sent - fetched + host - a * (out - next_out);
    s += -a * (both_out - next_both_out) - shared * a * (both_in - next_both_in);
    s += -end - inner - at_most_zero(d.begin, k + 1);
    f += fetched - host - b * (in - next_in);
    f += -b * (both_in - next_both_in) - shared * b * (both_out - next_both_out);
    f += end + at_most_zero(d.begin, k + 1) + at_most_zero(d.inner, k + 1);
    f += at_least_zero(d.deadline, k + 1);
    sent_cost[k] = -s;
    fetched_cost[k] = -f;
  }
  bound += moved * (least_of_tails(sent_cost) + least_of_tails(fetched_cost));
  return std::max(bound, least_ms(p));
}

double least_ms(const step_problem& p) {
  double sum = 0.0;
  for (const double ms : p.ms)
    sum += ms;
  for (const item& i : p.items) {
    double least = std::numeric_limits<double>::infinity();
    for (const item_option& o : i.options) {
      double work = 0.0;
      for (const added_work& w : o.work)
        work += w.ms;
      least = std::min(least, work);
    }
    sum += least;
  }
  return sum;
}

}  // namespace stash::planner
