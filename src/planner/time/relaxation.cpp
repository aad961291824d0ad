// SPDX-License-Identifier: Apache-2.0
// What prices prove, without a solver.

#include "planner/time/relaxation.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

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

const class_prices& of_class(const dual_prices& d, std::size_t number) {
  static const class_prices none;
  return number < d.classes.size() ? d.classes[number] : none;
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
        const class_prices& own = of_class(d, class_of(d.limits, t.bytes));
        held(position_of(t.released) + 1, bytes);
        held(position_of(t.needed), -bytes);
        if (position_of(t.released) + 1 < steps)
          cost += price(own.released, position_of(t.released) + 1) * bytes;
        cost += price(own.needed, position_of(t.needed)) * bytes;
      }
      for (const added_work& w : o.work)
        cost += at_least_zero(d.compute, position_of(w.tick)) * w.ms;
      list.push_back(cost);
    }
  }
  return costs;
}

namespace {

template <class Visit>
void each_transfer(const step_problem& p, Visit visit) {
  for (const item& i : p.items) {
    for (const item_option& o : i.options) {
      for (const transfer& t : o.transfers)
        visit(t);
    }
  }
}

/// The most that any column can be in a plan that is worth a look.
struct column_limits {
  double bytes = 0.0, ms = 0.0;
  std::vector<double> moved;  ///< per class
};

column_limits limits_of(const step_problem& p, const class_limits& limits, bool linked) {
  column_limits most;
  most.moved.assign(std::max<std::size_t>(limits.size(), 1), 0.0);
  std::vector<double> moved, most_moved;
  for (const item& i : p.items) {
    double most_held = 0.0, most_work = 0.0, most_link = 0.0;
    most_moved.assign(most.moved.size(), 0.0);
    for (const item_option& o : i.options) {
      double held = 0.0, work = 0.0, link = 0.0;
      moved.assign(most.moved.size(), 0.0);
      for (const held_bytes& h : o.held)
        held += static_cast<double>(h.bytes);
      for (const transfer& t : o.transfers) {
        const auto bytes = static_cast<double>(t.bytes);
        held += bytes;
        moved[class_of(limits, t.bytes)] += bytes;
        if (linked) link += 2.0 * p.link.latency_ms + bytes / p.link.out_rate + bytes / p.link.in_rate;
      }
      for (const added_work& w : o.work)
        work += w.ms;
      most_held = std::max(most_held, held);
      most_work = std::max(most_work, work);
      most_link = std::max(most_link, link);
      for (std::size_t c = 0; c < moved.size(); ++c)
        most_moved[c] = std::max(most_moved[c], moved[c]);
    }
    most.bytes += most_held;
    most.ms += most_work + most_link;
    for (std::size_t c = 0; c < most_moved.size(); ++c)
      most.moved[c] += most_moved[c];
  }
  for (const double ms : p.ms)
    most.ms += ms;
  return most;
}

// What the rows charge for a byte of a class that has been sent, or fetched, by the end of a step.
class column_costs {
 public:
  column_costs(const step_problem& p, const dual_prices& d)
      : d_(d), shared_(p.link.contention > 0.0 ? 1.0 / p.link.contention - 1.0 : 0.0) {}

  double sent(std::size_t k, const class_prices& own, double out_ms) const {
    const double charged = at_most_zero(own.sent, k) - at_most_zero(own.fetched, k) +
                           at_most_zero(d_.host, k) - out_ms * (out(k) - out(k + 1)) -
                           at_most_zero(d_.end, k) - at_most_zero(d_.inner, k) -
                           at_most_zero(d_.begin, k + 1);
    return -charged;
  }

  double fetched(std::size_t k, const class_prices& own, double in_ms) const {
    const double charged = at_most_zero(own.fetched, k) - at_most_zero(d_.host, k) -
                           in_ms * (in(k)-in(k + 1)) + at_most_zero(d_.end, k) +
                           at_most_zero(d_.begin, k + 1) + at_most_zero(d_.inner, k + 1) +
                           at_least_zero(own.deadline, k + 1);
    return -charged;
  }

 private:
  // Of a ms of the link in this step.
  double out(std::size_t k) const {
    return at_least_zero(d_.out, k) + at_least_zero(d_.both_out, k) + shared_ * at_least_zero(d_.both_in, k);
  }
  double in(std::size_t k) const {
    return at_least_zero(d_.in, k) + at_least_zero(d_.both_in, k) + shared_ * at_least_zero(d_.both_out, k);
  }

  const dual_prices& d_;
  const double shared_;
};

// What the columns of transfers add to a bound. Sums that never fall count each of their bytes from some step
// on: the cheapest one, or never.
double bound_of_transfers(const step_problem& p, const dual_prices& d, const std::vector<double>& moved) {
  const std::vector<class_rate> rates = class_rates(p, d.limits);
  const column_costs costs(p, d);
  double bound = 0.0;
  for (std::size_t c = 0; c < moved.size(); ++c) {
    const class_prices& own = of_class(d, c);
    double sent = 0.0, fetched = 0.0, least_sent = 0.0, least_fetched = 0.0;
    for (std::size_t k = p.ms.size(); k-- > 0;) {
      const auto next = [&](const std::vector<double>& list) { return price(list, k + 1); };
      bound +=
          column(-(price(own.released, k) - next(own.released) - at_most_zero(own.sent, k)), 0.0, moved[c]);
      bound +=
          column(-(price(own.needed, k) - next(own.needed) - at_least_zero(own.deadline, k)), 0.0, moved[c]);
      sent += costs.sent(k, own, rates[c].out_ms);
      fetched += costs.fetched(k, own, rates[c].in_ms);
      least_sent = std::min(least_sent, sent);
      least_fetched = std::min(least_fetched, fetched);
    }
    bound += moved[c] * (least_sent + least_fetched);
  }
  return bound;
}

}  // namespace

std::size_t class_of(const class_limits& limits, std::int64_t bytes) noexcept {
  if (limits.empty()) return 0;
  return static_cast<std::size_t>(std::lower_bound(limits.begin(), limits.end() - 1, bytes) - limits.begin());
}

class_limits transfer_classes(const step_problem& p) {
  // In bytes that pass within a latency: shares of it of a half, a sixteenth and less than a hundredth.
  constexpr std::array<double, 3> latencies{2.0, 16.0, 128.0};
  // A class of less than this share of all bytes joins the next one.
  constexpr double least_share = 0.02;
  const double passed = p.link.latency_ms * std::min(p.link.out_rate, p.link.in_rate);
  if (!(passed > 0.0)) return {};
  class_limits all;
  for (const double factor : latencies)
    all.push_back(static_cast<std::int64_t>(std::min(factor * passed, 1e18)));
  all.push_back(std::numeric_limits<std::int64_t>::max());
  std::vector<std::int64_t> largest(all.size(), 0);
  each_transfer(p, [&](const transfer& t) {
    std::int64_t& most = largest[class_of(all, t.bytes)];
    most = std::max(most, t.bytes);
  });
  const std::vector<double> moved = limits_of(p, all, true).moved;
  const double enough = least_share * std::accumulate(moved.begin(), moved.end(), 0.0);
  class_limits limits;
  double bytes = 0.0;
  for (std::size_t c = 0; c < all.size(); ++c) {
    bytes += moved[c];
    const bool rest = std::all_of(moved.begin() + static_cast<std::ptrdiff_t>(c) + 1, moved.end(),
                                  [](double later) { return later == 0.0; });
    if (largest[c] == 0 || (bytes < enough && !rest)) continue;
    limits.push_back(largest[c]);
    bytes = 0.0;
    if (rest) break;
  }
  return limits;
}

std::vector<class_rate> class_rates(const step_problem& p, const class_limits& limits) {
  std::vector<class_rate> rates(std::max<std::size_t>(limits.size(), 1));
  if (!(p.link.out_rate > 0.0 && p.link.in_rate > 0.0)) return rates;
  std::int64_t largest = 1;
  each_transfer(p, [&](const transfer& t) { largest = std::max(largest, t.bytes); });
  for (std::size_t c = 0; c < rates.size(); ++c) {
    double latency = 0.0;
    if (c < limits.size()) {
      const std::int64_t upper = c + 1 < limits.size() ? limits[c] : std::max(limits[c], largest);
      latency = p.link.latency_ms / static_cast<double>(upper);
    }
    rates[c] = {1.0 / p.link.out_rate + latency, 1.0 / p.link.in_rate + latency};
  }
  return rates;
}

double bound_from(const step_problem& p, const dual_prices& prices) {
  const dual_prices& d = prices;
  const std::size_t steps = p.ms.size();
  if (steps == 0) return 0.0;
  const bool linked = p.link.out_rate > 0.0 && p.link.in_rate > 0.0;
  const column_limits most = limits_of(p, d.limits, linked);
  const auto limit = static_cast<double>(p.limit);

  double bound = 0.0;
  for (const std::vector<double>& costs : priced_options(p, d))
    bound += *std::min_element(costs.begin(), costs.end());
  for (std::size_t k = 0; k < steps; ++k) {
    const double compute = at_least_zero(d.compute, k);
    const double begin = at_most_zero(d.begin, k), end = at_most_zero(d.end, k),
                 inner = at_most_zero(d.inner, k);
    // Right-hand sides.
    bound += compute * p.ms[k];
    bound += begin * (limit - static_cast<double>(p.fixed_first[k]));
    bound += end * (limit - static_cast<double>(p.fixed_last[k]));
    bound += inner * (limit - static_cast<double>(p.fixed[k]));
    const double host = at_most_zero(d.host, k);
    if (host < 0.0) bound += host * static_cast<double>(p.link.host_bytes);
    // T
    double rate = 1.0 - compute;
    if (linked) {
      for (const auto* list : {&d.out, &d.in, &d.both_out, &d.both_in})
        rate -= at_least_zero(*list, k);
    }
    bound += column(rate, p.ms[k], most.ms);
    // H
    bound += column(-(price(d.held, k) - price(d.held, k + 1) + begin + end + inner), 0.0, most.bytes);
  }
  if (linked) bound += bound_of_transfers(p, d, most.moved);
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
