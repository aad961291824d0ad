// SPDX-License-Identifier: Apache-2.0
// Whether the prices of a plan's certificate prove the bound on its time (docs/planning.md, "Checking a
// bound").

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/verify/validator_bound.hpp"

namespace stash::planner::validation {
namespace {

constexpr double tolerance = 1e-6;

// What the planner takes for no limit at all.
constexpr double unlimited = 4503599627370496.0;  // 2^52

// Parameters and workspace.
double static_bytes(const graph& g) {
  std::int64_t workspace = 0;
  for (const op& o : g.ops)
    workspace = std::max(workspace, round_up(o.workspace_bytes));
  return static_cast<double>(fixed_size_bytes(g)) + static_cast<double>(workspace);
}

bool differ(double reported, double own) {
  return !(std::abs(reported - own) <= tolerance * std::max(std::abs(own), 1e-9));
}

class bound_checker {
 public:
  bound_checker(const plan& p, finding_list& found)
      : p_(p), g_(p.network), m_(*p.model), times_(time_model_of(m_)), found_(found) {}

  double run() {
    for (const op& o : g_.ops) {
      const double ms = times_->op_time(g_, o);
      if (!(ms >= 0.0 && ms <= 1e12)) {
        found_.add(plan_fault::bad_bound, "op {}: {} ms by the model", o.name, ms);
        return 0.0;
      }
      all_ms_ += ms;
    }
    const plan_times& t = p_.times;
    if (differ(t.unplanned_ms, all_ms_)) {
      found_.add(plan_fault::bad_bound, "unplanned_ms: reported {}, the ops take {}", t.unplanned_ms,
                 all_ms_);
    }
    if (!(t.bound_ms <= t.simulated_ms * (1.0 + 1e-9))) {
      found_.add(plan_fault::bad_bound, "bound_ms: {} above simulated_ms {}", t.bound_ms, t.simulated_ms);
    }
    const double limit = this->limit();
    const double proven = prove(limit);
    if (!(t.bound_ms <= proven * (1.0 + tolerance))) {
      found_.add(plan_fault::bad_bound, "bound_ms: {}, but no more than {} is proven", t.bound_ms, proven);
    }
    return proven;
  }

 private:
  // What maps may take by budget or machine, whatever the certificate says.
  double limit() {
    double whole = unlimited;
    if (p_.budget_bytes > 0) {
      whole = static_cast<double>(p_.budget_bytes);
    } else if (m_.memory_bytes > 0) {
      whole = static_cast<double>(m_.memory_bytes);
    }
    const double limit = whole - static_bytes(g_);
    if (!p_.certificate.first_tick.empty() && static_cast<double>(p_.certificate.limit_bytes) != limit) {
      found_.add(plan_fault::bad_bound, "certificate: a limit of {} bytes, budget or machine leave {}",
                 p_.certificate.limit_bytes, limit);
    }
    return limit;
  }

  double prove(double limit) {
    const std::size_t ticks = g_.ops.empty() ? 0 : 2 * g_.ops.size() - 1;
    std::vector<double> op_ms(ticks, 0.0);
    for (const op_id i : g_.ops.ids())
      op_ms[position_of(tick_of(i))] = times_->op_time(g_, g_.ops[i]);
    const legal_set legal(p_);
    const std::vector<std::int64_t> fixed_sums = fixed_bytes(g_, legal, ticks);
    const std::vector<double> fixed(fixed_sums.begin(), fixed_sums.end());
    const tick_prices prices(p_.certificate, m_, legal.moves(), limit, fixed, op_ms, found_);
    if (!prices.readable()) return 0.0;
    sum_t priced = 0.0L;
    double least = all_ms_, bytes = 0.0, work = 0.0;
    std::vector<double> movable(prices.classes(), 0.0);
    std::int64_t budget = 20'000'000;
    for (const choice_group& c : groups_of(g_, legal)) {
      const group_cost cost = cheapest(p_, legal, prices, c, budget);
      if (!cost.legal) {
        found_.add(plan_fault::bad_bound, "storage {}: no form is legal", g_.storages[c.storages[0]].name);
        return 0.0;
      }
      priced += cost.priced;
      least += cost.work;
      for (std::size_t k = 0; k < movable.size(); ++k)
        movable[k] += cost.movable[k];
      bytes += cost.most_bytes;
      work += cost.most_work;
    }
    const double longest = std::max(p_.times.simulated_ms, all_ms_);
    priced += prices.constant(movable, longest);
    // No more than what rounding could have added.
    const auto n = static_cast<sum_t>(ticks + p_.certificate.first_tick.size() + 1000);
    priced -= n * std::numeric_limits<sum_t>::epsilon() * prices.magnitude(bytes, work + all_ms_, longest);
    const auto bound = static_cast<double>(std::min<sum_t>(priced, longest));
    return bound > least ? bound : least;
  }

  const plan& p_;
  const graph& g_;
  const machine& m_;
  const std::unique_ptr<const time_model> times_;
  finding_list& found_;
  double all_ms_ = 0.0;
};

}  // namespace

double check_bound(const plan& p, finding_list& found) {
  const plan_times& t = p.times;
  const bool certified = !p.certificate.first_tick.empty() || !p.certificate.prices.empty();
  if (!certified && t.unplanned_ms == 0.0 && t.simulated_ms == 0.0 && t.bound_ms == 0.0) return 0.0;
  if (!p.model) {
    found.add(plan_fault::bad_bound, "times without the model that they are of");
    return 0.0;
  }
  if (!time_model_of(*p.model)->is_sane()) {
    found.add(plan_fault::bad_bound, "model: rates or shares out of range");
    return 0.0;
  }
  if (p.network.ops.size() > most_ops) {
    found.add(plan_fault::bad_bound, "{} ops are too many", p.network.ops.size());
    return 0.0;
  }
  return bound_checker(p, found).run();
}

}  // namespace stash::planner::validation
